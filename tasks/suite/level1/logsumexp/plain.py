"""Eager makes several passes with temporaries. One loop for the maximum and one for the sum of exponentials avoid
them; expf of the C library, one value at a time, is the bottleneck."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void logsumexp(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float m = a[0];
        double sum = 0;
        for (long c = 1; c < cols; c++) m = fmaxf(m, a[c]);
        for (long c = 0; c < cols; c++) sum += expf(a[c] - m);
        y[r] = m + logf(sum);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0])
        kernel.logsumexp(x, y, x.shape[0], x.shape[1])
        return y
