"""Eager writes all log-probabilities for the sake of one. Row by row here: the maximum, then a sum in double, with
expf of the C library called for each value, which dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const long* target, const float* w, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols) {
        float m = x[0];
        double sum = 0;
        for (long c = 1; c < cols; c++) m = fmaxf(m, x[c]);
        for (long c = 0; c < cols; c++) sum += expf(x[c] - m);
        y[r] = (m - x[target[r]] + log(sum)) * w[target[r]];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target, weight):
        y = x.new_empty(x.shape[0])
        kernel.run(x, target, weight, y, *x.shape)
        return y
