"""Bound by exp. Maximum, exp and sum, division, row by row, with expf of the C library: the row stays in the cache,
but expf is called once for each value."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void softmax(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float* b = y + r * cols;
        float m = a[0];
        double sum = 0;
        for (long c = 1; c < cols; c++) m = fmaxf(m, a[c]);
        for (long c = 0; c < cols; c++) {
            b[c] = expf(a[c] - m);
            sum += b[c];
        }
        for (long c = 0; c < cols; c++) b[c] /= sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.softmax(x, y, x.shape[0], x.shape[1])
        return y
