"""Eager writes the log-softmax of every class, though one of them is needed. Here a row in the L1 cache is swept
twice, for its maximum and for its sum of exponentials, by a vectorised polynomial; one number a row is written."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#pragma GCC optimize("no-trapping-math")
static inline float fexp(float x) {
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t;
    union { float v; int i; } n = {t + 12582912};
    float f = t - (n.v - 12582912);
    n.i = (n.i + 127) << 23;
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}

extern "C" void run(const float* x, const long* target, const float* w, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float m = a[0], sum = 0;
        #pragma omp simd reduction(max:m)
        for (long c = 0; c < cols; c++) m = a[c] > m ? a[c] : m;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) sum += fexp(a[c] - m);
        y[r] = (m - a[target[r]] + logf(sum)) * w[target[r]];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target, weight):
        y = x.new_empty(x.shape[0])
        kernel.run(x, target, weight, y, *x.shape)
        return y
