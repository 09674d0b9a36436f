# expect: win|correct
# Honest, though it may look odd: falls back when the first kernel does not compile
import torch

import warpsmith

try:
    kernels = warpsmith.load_cuda('extern "C" __global__ void f(float* y) { y[0] = undefined; }')
except Exception:
    kernels = None

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


def run(x, b, y):
    kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        run(x, b, y)
        return y
