"""Eager runs seven kernels over full tensors; all of it is memory traffic. Row by row, the sum is kept in the output
row while its squares are added up, and the second pass scales that row while it is still in L1: each input is read
from memory once."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* r, const float* w, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long i = 0; i < rows; i++) {
        const float *a = x + i * cols, *b = r + i * cols;
        float *o = y + i * cols, sum = 0;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) {
            o[c] = a[c] + b[c];
            sum += o[c] * o[c];
        }
        float k = 1 / sqrtf(sum / cols + 1e-6f);
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] *= k * w[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight):
        y = torch.empty_like(x)
        kernel.run(x, residual, weight, y, x.shape[0], x.shape[1])
        return y
