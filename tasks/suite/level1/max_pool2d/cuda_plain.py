"""One thread for each pixel of the output loops over its window, clipped at the border: nine loads, of which the
cache serves most, and several divisions to find out where the pixel lies."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void max_pool(const float* x, float* y, long long n, int H, int W, int P, int Q) {
    long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    x += t / (P * Q) * H * W;
    int i = t / Q % P * 2, j = t % Q * 2;
    float m = -INFINITY;
    for (int k = max(i - 1, 0); k < min(i + 2, H); k++)
        for (int l = max(j - 1, 0); l < min(j + 2, W); l++) m = fmaxf(m, x[k * W + l]);
    y[t] = m;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        P, Q = (H + 1) // 2, (W + 1) // 2
        y = x.new_empty(N, C, P, Q)
        kernels.max_pool((y.numel() + 255) // 256, 256, x, y, y.numel(), H, W, P, Q)
        return y
