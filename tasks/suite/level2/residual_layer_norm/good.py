"""Eager stores the sum and reads it again. Row by row, the sum is kept in the output row, in the L1 cache, through
three vectorised sweeps: sum and mean, variance, scaling. Each input is read from memory once."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* s, const float* w, const float* b, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float *a = x + r * cols, *d = s + r * cols;
        float *o = y + r * cols, m = 0, q = 0;
        #pragma omp simd reduction(+:m)
        for (long c = 0; c < cols; c++) m += o[c] = a[c] + d[c];
        m /= cols;
        #pragma omp simd reduction(+:q)
        for (long c = 0; c < cols; c++) {
            o[c] -= m;
            q += o[c] * o[c];
        }
        float k = 1 / sqrtf(q / cols + 1e-5f);
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] = o[c] * k * w[c] + b[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight, bias):
        y = torch.empty_like(x)
        kernel.run(x, residual, weight, bias, y, *x.shape)
        return y
