"""Eager makes six passes. Here two loops for each row: the largest absolute value, then division and nearbyintf,
whose result must round halves to even as torch's does. Neither loop vectorises well."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, signed char* q, float* scale, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols, q += cols) {
        float m = 0;
        for (long c = 0; c < cols; c++) m = fmaxf(m, fabsf(x[c]));
        scale[r] = fmaxf(m * (float)(1. / 127), 1e-8f);
        for (long c = 0; c < cols; c++) q[c] = nearbyintf(x[c] / scale[r]);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(rows, 1)
        kernel.run(x, q, scale, rows, cols)
        return q, scale
