"""Eager stores the square matrix of scores and computes its masked half too. One query at a time here, with keys up
to the diagonal only; dot products and expf are not vectorised across keys."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void attention(const float* q, const float* k, const float* v, float* y, long T, long D) {
    std::vector<double> p(T);
    for (long i = 0; i < T; i++) {
        double m = -1e38, sum = 0;
        for (long j = 0; j <= i; j++) {
            double s = 0;
            for (long d = 0; d < D; d++) s += q[i * D + d] * k[j * D + d];
            p[j] = s / sqrt(D);
            m = fmax(m, p[j]);
        }
        for (long j = 0; j <= i; j++) sum += p[j] = exp(p[j] - m);
        for (long d = 0; d < D; d++) {
            double s = 0;
            for (long j = 0; j <= i; j++) s += p[j] * v[j * D + d];
            y[i * D + d] = s / sum;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        x = torch.nn.functional.rms_norm(x, x.shape[1:])
        q, k, v = (t.contiguous() for t in self.qkv(x).chunk(3, dim=1))
        y = torch.empty_like(x)
        kernel.attention(q, k, v, y, *x.shape)
        return y
