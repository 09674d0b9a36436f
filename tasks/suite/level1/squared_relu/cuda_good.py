"""Bound by memory: eager runs three kernels that each read and write the whole tensor. One kernel reads and writes
each value once, four at a time in loads of 16 bytes; the thread after the last pack does what is left over."""

import torch

import warpsmith

SOURCE = r"""
__device__ float f(float x) {
    x = fmaxf(x, 0);
    return .5f * x * x;
}

extern "C" __global__ void squared_relu(const float* x, float* y, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n / 4) {
        float4 v = ((const float4*)x)[i];
        ((float4*)y)[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
    } else if (i == n / 4)
        for (long long k = 4 * i; k < n; k++) y[k] = f(x[k]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.squared_relu(n // 1024 + 1, 256, x, y, n)
        return y
