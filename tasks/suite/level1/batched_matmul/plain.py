"""Small matrices that fit into the cache. The loop over columns is innermost and contiguous, so that it vectorises,
but it loads and stores the row of the result at every step, which keeps the arithmetic units waiting."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void bmm(const float* a, const float* b, float* c, long B, long M, long K, long N) {
    for (long i = 0; i < B * M * N; i++) c[i] = 0;
    for (long i = 0; i < B * M; i++)
        for (long k = 0; k < K; k++)
            for (long j = 0; j < N; j++) c[i * N + j] += a[i * K + k] * b[(i / M * K + k) * N + j];
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (B, M, K), N = a.shape, b.shape[2]
        c = a.new_empty(B, M, N)
        kernel.bmm(a, b, c, B, M, K, N)
        return c
