"""Eager stores the square matrix of scores and computes its masked half too. This kernel handles one query at a time,
with keys up to the diagonal only; the dot products and expf are not vectorised across keys."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void attention(const float* z, float* y, long T, long D) {
    std::vector<float> p(T);
    for (long i = 0; i < T; i++) {
        const float* q = z + i * 3 * D;
        float m = -1e38f;
        double sum = 0;
        for (long j = 0; j <= i; j++) {
            float s = 0;
            for (long d = 0; d < D; d++) s += q[d] * z[j * 3 * D + D + d];
            p[j] = s / sqrtf(D);
            m = fmaxf(m, p[j]);
        }
        for (long j = 0; j <= i; j++) sum += p[j] = expf(p[j] - m);
        for (long d = 0; d < D; d++) y[i * D + d] = 0;
        for (long j = 0; j <= i; j++)
            for (long d = 0; d < D; d++) y[i * D + d] += p[j] / sum * z[j * 3 * D + 2 * D + d];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        y = torch.empty_like(x)
        kernel.attention(self.qkv(x), y, x.shape[0], x.shape[1])
        return y
