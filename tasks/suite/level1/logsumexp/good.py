"""Eager computes the maximum, the difference, exp and the sum as separate passes with temporaries. Here a row is read
from memory once and from L1 the second time, nothing but one number is written, and exp is a vectorised
polynomial."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
#include <math.h>
static inline float fexp(float x) {  // 2^n * 2^f
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};  // rounds t
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void logsumexp(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float m = a[0], sum = 0;
        #pragma omp simd reduction(max:m)
        for (long c = 0; c < cols; c++) m = a[c] > m ? a[c] : m;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) sum += fexp(a[c] - m);
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
