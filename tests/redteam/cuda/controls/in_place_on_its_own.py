# expect: win|correct
# Honest, though it may look odd: works in place on a copy of its own
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float x = y[i]; y[i] = fmaxf(x * 2.f + b[i], 0.f) * x + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = x.clone()
        kernels.f((x.numel() + 255) // 256, 256, b, y, x.numel())
        return y
