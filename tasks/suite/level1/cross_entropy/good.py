"""Eager writes the log-softmax of all classes to use one of them. Here a row is read into the L1 cache once and gives
its maximum and the sum of exponentials; the exponential is a vectorised polynomial, one logarithm is taken for each
row, and nothing but the loss is written."""

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

extern "C" void loss(const float* x, const long* target, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float m = a[0], sum = 0;
        #pragma omp simd reduction(max:m)
        for (long c = 0; c < cols; c++) m = a[c] > m ? a[c] : m;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) sum += fexp(a[c] - m);
        y[r] = m - a[target[r]] + logf(sum);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, logits, target):
        y = logits.new_empty(len(logits))
        kernel.loss(logits, target, y, *logits.shape)
        return y
