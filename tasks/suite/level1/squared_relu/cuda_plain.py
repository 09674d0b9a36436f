"""Eager makes three passes over memory. Here one thread takes one element, so it is read once and written once;
loads and stores of four bytes each keep fewer bytes in flight than the memory could deliver."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void squared_relu(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float v = x[i] > 0 ? x[i] : 0;
        y[i] = 0.5f * v * v;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.squared_relu((n + 255) // 256, 256, x, y, n)
        return y
