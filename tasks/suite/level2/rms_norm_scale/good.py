"""Eager runs six kernels, of which four pass over the full size. A row stays in the L1 cache between the sum of its
squares and its scaling, so memory sees one read and one write; both loops vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* w, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float *o = y + r * cols, sum = 0;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) sum += a[c] * a[c];
        float k = 1 / sqrtf(sum / cols + 1e-6f);
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] = a[c] * k * (1 + w[c]);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        kernel.run(x, weight, y, *x.shape)
        return y
