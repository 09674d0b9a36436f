"""Row by row: maximum, then the sum of exponentials with expf of the C library, one value at a time, which is the
bottleneck. No temporary of the size of the logits is written."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void loss(const float* x, const long* target, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols) {
        float m = x[0];
        double sum = 0;
        for (long c = 1; c < cols; c++) m = fmaxf(m, x[c]);
        for (long c = 0; c < cols; c++) sum += expf(x[c] - m);
        y[r] = m - x[target[r]] + log(sum);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        y = logits.new_empty(len(logits))
        kernel.loss(logits, target, y, *logits.shape)
        return y
