"""With few columns the work is reading a once, but a general matmul packs panels made for wide matrices. Pack 8
columns of b into one vector for each k: it stays in L1. Four rows at a time keep four accumulators in registers, and
the next four rows are prefetched, since reading four short rows at once defeats the hardware."""

import torch

import warpsmith

SOURCE = r"""
#include <vector>
typedef float V __attribute__((vector_size(32)));
extern "C" void matmul(const float* a, const float* b, float* c, long M, long K, long N) {
    std::vector<V> p(K);
    for (long j = 0; j < N; j += 8) {
        long w = N - j < 8 ? N - j : 8;
        for (long k = 0; k < K; k++)
            for (long l = 0; l < w; l++) p[k][l] = b[k * N + j + l];
        for (long i = 0; i < M; i += 4) {
            long n = M - i < 4 ? M - i : 4;
            V s[4] = {};
            for (long k = 0; k < K; k++) {
                for (long t = 0; t < 4; t++) s[t] += a[(i + t % n) * K + k] * p[k];
                if (k % 4 == 0) __builtin_prefetch(a + (i + 4) * K + k * 4);
            }
            for (long t = 0; t < n; t++)
                for (long l = 0; l < w; l++) c[(i + t) * N + j + l] = s[t][l];
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        kernel.matmul(a, b, c, *a.shape, b.shape[1])
        return c
