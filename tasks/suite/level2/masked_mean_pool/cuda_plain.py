"""Eager stores the masked tokens. One thread for each channel of each sample walks through the tokens; neighbours
read neighbouring channels, but there are few threads and each waits for its loads."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void pool(const float* x, const bool* mask, float* y, int B, int T, int D) {
    int i = blockIdx.x * 64 + threadIdx.x;
    if (i >= B * D) return;
    float s = 0, n = 0;
    for (long long t = (long long)(i / D) * T; t < (long long)(i / D + 1) * T; t++)
        if (mask[t]) s += x[t * D + i % D], n++;
    y[i] = s / fmaxf(n, 1);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        B, T, D = x.shape
        y = x.new_empty(B, D)
        kernels.pool((B * D + 63) // 64, 64, x, mask, y, B, T, D)
        return y
