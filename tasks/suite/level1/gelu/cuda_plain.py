"""Memory is read once and written once, and the error function is cheap beside that on a GPU. One thread for each
value, in loads of four bytes, which do not quite fill the memory's bandwidth."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void gelu(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.gelu((n + 255) // 256, 256, x, y, n)
        return y
