"""Overhead of many small kernels dominates in eager. One kernel follows each channel through time with its state in a
register; the strided reads use only part of each cache line at a time and do not vectorise."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void scan(const float* x, const float* a, const float* w, float* y, long B, long T, long D) {
    for (long b = 0; b < B; b++)
        for (long d = 0; d < D; d++) {
            float h = 0;
            for (long t = 0; t < T; t++) {
                long i = (b * T + t) * D + d;
                h = a[d] * h + x[i];
                y[i] = w[d] * h + x[i];
            }
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(dim) + 1)
        self.out = torch.nn.Parameter(torch.randn(dim))

    def forward(self, x):
        y = torch.empty_like(x)
        kernel.scan(x, torch.sigmoid(self.decay), self.out, y, *x.shape)
        return y
