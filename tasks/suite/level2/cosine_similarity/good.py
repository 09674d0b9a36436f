"""Eager stores three products of the full size and reads them again. One vectorised sweep takes the three sums of a
row together, so each value is read once and nothing but the result is written."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* a, const float* b, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float *u = a + r * cols, *v = b + r * cols;
        float p = 0, q = 0, s = 0;
        #pragma omp simd reduction(+:p,q,s)
        for (long c = 0; c < cols; c++) {
            p += u[c] * u[c];
            q += v[c] * v[c];
            s += u[c] * v[c];
        }
        y[r] = s / fmaxf(sqrtf(p) * sqrtf(q), 1e-8f);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = a.new_empty(a.shape[0])
        kernel.run(a, b, y, *a.shape)
        return y
