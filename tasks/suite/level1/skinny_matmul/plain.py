"""The output is narrow, so a is read about once and b stays in the cache. For each row, add a[i][k] times row k of b
to the row of c: the inner loop is contiguous, but only N values long."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void matmul(const float* a, const float* b, float* c, long M, long K, long N) {
    for (long i = 0; i < M; i++) {
        for (long j = 0; j < N; j++) c[i * N + j] = 0;
        for (long k = 0; k < K; k++)
            for (long j = 0; j < N; j++)
                c[i * N + j] += a[i * K + k] * b[k * N + j];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty(a.shape[0], b.shape[1])
        kernel.matmul(a, b, c, *a.shape, b.shape[1])
        return c
