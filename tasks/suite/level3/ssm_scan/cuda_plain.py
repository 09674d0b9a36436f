"""Overhead of many small kernels dominates in eager. One thread for each channel of each sequence walks through time;
a step waits for the load of its value, so latency of memory is the bound."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void scan(const float* x, const float* a, const float* w, float* y, int B, int T, int D) {
    int i = blockIdx.x * 256 + threadIdx.x;
    if (i >= B * D) return;
    int d = i % D;
    float h = 0;
    for (int t = 0; t < T; t++) {
        long long o = ((long long)(i / D) * T + t) * D + d;
        h = a[d] * h + x[o];
        y[o] = w[d] * h + x[o];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(dim) + 1)
        self.out = torch.nn.Parameter(torch.randn(dim))

    def forward(self, x):
        y, (B, T, D) = torch.empty_like(x), x.shape
        kernels.scan((B * D + 255) // 256, 256, x, torch.sigmoid(self.decay), self.out, y, B, T, D)
        return y
