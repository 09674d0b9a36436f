"""Bound by multiply-adds. Sixteen columns of b are packed side by side, so that a step along k is one vector load
from the L1 cache; it serves eight rows of a, whose sums stay in eight vector registers, enough to hide the latency of
multiply-adds."""

import torch

import warpsmith

SOURCE = r"""
#include <vector>
typedef float V __attribute__((vector_size(64)));
extern "C" void matmul(const float* a, const float* b, float* c, long n) {
    std::vector<V> p(n);
    for (long j = 0; j < n; j += 16) {
        long w = n - j < 16 ? n - j : 16;
        for (long k = 0; k < n; k++)
            for (long l = 0; l < w; l++) p[k][l] = b[k * n + j + l];
        for (long i = 0; i < n; i += 8) {
            V s[8] = {};
            const float* r[8];
            for (long t = 0; t < 8; t++) r[t] = a + (i + t < n ? i + t : i) * n;
            for (long k = 0; k < n; k++)
                for (long t = 0; t < 8; t++) s[t] += r[t][k] * p[k];
            for (long t = 0; t < 8 && i + t < n; t++)
                for (long l = 0; l < w; l++) c[(i + t) * n + j + l] = s[t][l];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        kernel.matmul(a, b, c, len(a))
        return c
