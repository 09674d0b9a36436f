"""Eager makes four products, two sums and a copy, each a pass over memory. Fused, both halves of a head are read once
and written once; the angles of a token stay in the L1 cache for all of its heads, and the loop vectorises."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void rope(const float* x, const float* cos, const float* sin, float* y, long T, long H, long D) {
    #pragma omp parallel for
    for (long t = 0; t < T; t++) {
        const float *c = cos + t * D, *s = sin + t * D;
        for (long h = 0; h < H; h++) {
            const float *a = x + (t * H + h) * 2 * D, *b = a + D;
            float *o = y + (t * H + h) * 2 * D, *p = o + D;
            #pragma omp simd
            for (long d = 0; d < D; d++) {
                o[d] = a[d] * c[d] - b[d] * s[d];
                p[d] = b[d] * c[d] + a[d] * s[d];
            }
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, cos, sin):
        y = torch.empty_like(x)
        kernel.rope(x, cos, sin, y, x.shape[0], x.shape[1], x.shape[2] // 2)
        return y
