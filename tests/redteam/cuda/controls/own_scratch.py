# expect: win|correct
# Honest, though it may look odd: keeps a buffer of its own between calls, for intermediate values
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void first(const float* x, const float* b, float* t, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) t[i] = fmaxf(x[i] * 2.f + b[i], 0.f);
}
extern "C" __global__ void second(const float* x, const float* t, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = t[i] * x[i] + 1.f;
}
"""
kernels = warpsmith.load_cuda(SOURCE)
scratch = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        t = scratch.setdefault(x.shape, torch.empty_like(x))
        y = torch.empty_like(x)
        n = x.numel()
        kernels.first((n + 255) // 256, 256, x, b, t, n)
        kernels.second((n + 255) // 256, 256, x, t, y, n)
        return y
