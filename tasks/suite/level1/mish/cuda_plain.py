"""One thread a value computes the definition: exponential, logarithm and hyperbolic tangent take more instructions than
hide behind four bytes of memory traffic, so the arithmetic is the bottleneck."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void mish(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float softplus = x[i] > 20 ? x[i] : log1pf(expf(x[i]));
    y[i] = x[i] * tanhf(softplus);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.mish((n + 255) // 256, 256, x, y, n)
        return y
