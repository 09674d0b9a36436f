"""A row fits into the L1 cache, so memory is read once; the time goes into exp. Three vectorised passes over a cached
row: maximum, exp by a polynomial of degree 5 with the sum, then one multiplication by the reciprocal instead of a
division."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
static inline float fexp(float x) {  // 2^t = 2^n * 2^f, error 2e-7
    float t = x * 1.442695f;
    t = t < -100 ? -100 : t > 100 ? 100 : t;
    float n = rintf(t), f = t - n;
    float p = 1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f))));
    union { int i; float v; } s = {((int)n + 127) << 23};
    return t > -100 ? p * s.v : 0;
}

extern "C" void softmax(const float* x, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float* b = y + r * cols;
        float m = a[0], sum = 0;
        #pragma omp simd reduction(max:m)
        for (long c = 0; c < cols; c++) m = a[c] > m ? a[c] : m;
        #pragma omp simd reduction(+:sum)
        for (long c = 0; c < cols; c++) sum += b[c] = fexp(a[c] - m);
        float k = 1 / sum;
        #pragma omp simd
        for (long c = 0; c < cols; c++) b[c] *= k;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.softmax(x, y, x.shape[0], x.shape[1])
        return y
