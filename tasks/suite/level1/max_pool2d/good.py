"""Nine comparisons a pixel with checks at the border leave memory idle. The maximum separates: three rows are merged
into a buffer, which vectorises and needs a check once a row, then three neighbours in the buffer. Its border of -inf
replaces the checks."""

import torch

import warpsmith

SOURCE = r"""
#pragma GCC optimize("no-trapping-math")
#include <math.h>
#include <vector>
static inline float larger(float a, float b) { return a > b ? a : b; }
extern "C" void max_pool(const float* x, float* y, long planes, long H, long W, long P, long Q) {
    #pragma omp parallel for
    for (long p = 0; p < planes; p++) {
        std::vector<float> buffer(W + 3, -INFINITY);
        float* m = buffer.data() + 1;
        for (long i = 0; i < P; i++) {
            const float* b = x + (p * H + 2 * i) * W;
            const float *a = i ? b - W : b, *c = 2 * i + 1 < H ? b + W : b;
            float* o = y + (p * P + i) * Q;
            #pragma omp simd
            for (long j = 0; j < W; j++) m[j] = larger(larger(a[j], b[j]), c[j]);
            #pragma omp simd
            for (long j = 0; j < Q; j++) o[j] = larger(larger(m[2 * j - 1], m[2 * j]), m[2 * j + 1]);
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        P, Q = (H + 1) // 2, (W + 1) // 2
        y = x.new_empty(N, C, P, Q)
        kernel.max_pool(x, y, N * C, H, W, P, Q)
        return y
