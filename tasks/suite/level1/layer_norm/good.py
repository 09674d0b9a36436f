"""A row stays in the L1 cache, so memory is read once and written once; the sums are what can wait. Four vector
accumulators hide the latency of additions; squared distances from the mean do not cancel as a difference of squares
would."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
typedef float V __attribute__((vector_size(64), aligned(4)));
template <class F> static float total(const float* a, long n, F f) {
    V s[4] = {};
    float t = 0;
    long c = 0;
    for (; c + 64 <= n; c += 64)
        for (int k = 0; k < 4; k++) s[k] += f(*(V*)(a + c + 16 * k));
    for (; c < n; c++) t += f(a[c]);
    for (int k = 0; k < 64; k++) t += s[k / 16][k % 16];
    return t;
}

extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y, long rows, long cols) {
    #pragma omp parallel for
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        float *o = y + r * cols, mean = total(a, cols, [](auto v) { return v; }) / cols;
        float square = total(a, cols, [=](auto v) { return (v - mean) * (v - mean); });
        float k = 1 / sqrtf(square / cols + 1e-5f);
        #pragma omp simd
        for (long c = 0; c < cols; c++) o[c] = (a[c] - mean) * k * w[c] + b[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        kernel.layer_norm(x, weight, bias, y, *x.shape)
        return y
