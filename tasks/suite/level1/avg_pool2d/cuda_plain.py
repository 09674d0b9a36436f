"""One thread for each pixel of the output adds four values. Neighbouring threads read every second value, so each
load uses half of what it fetches and the cache has to keep the other half; three divisions find the place."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void avg_pool(const float* x, float* y, long long n, int H, int W, int P, int Q) {
    long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= n) return;
    const float* a = x + (t / (P * Q) * H + t / Q % P * 2) * W + t % Q * 2;
    y[t] = (a[0] + a[1] + a[W] + a[W + 1]) / 4;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        y = x.new_empty(N, C, H // 2, W // 2)
        kernels.avg_pool((y.numel() + 255) // 256, 256, x, y, y.numel(), H, W, H // 2, W // 2)
        return y
