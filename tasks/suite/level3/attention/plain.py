"""Eager stores a square matrix of scores for each head. One query of one head at a time here, with its scores in a
buffer; dot products, exp of the C library and sums are in double and do not vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void attention(const float* z, float* y, long T, long H, long D) {
    long S = H * D;
    std::vector<double> p(T);
    for (long h = 0; h < S; h += D)
        for (long i = 0; i < T; i++) {
            double m = -1e9, sum = 0;
            for (long j = 0; j < T; j++) {
                p[j] = 0;
                for (long d = h; d < h + D; d++) p[j] += z[i * 3 * S + d] * z[j * 3 * S + S + d] / sqrt(D);
                m = fmax(m, p[j]);
            }
            for (double& e : p) sum += e = exp(e - m);
            for (long d = h; d < h + D; d++) {
                double s = 0;
                for (long j = 0; j < T; j++) s += p[j] * z[j * 3 * S + 2 * S + d];
                y[i * S + d] = s / sum;
            }
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, heads, size):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(heads * size, 3 * heads * size)

    def forward(self, x):
        y, T, H, D = torch.empty_like(x), x.shape[0], self.heads, x.shape[1] // self.heads
        kernel.attention(self.qkv(x), y, T, H, D)
        return y
