# expect: incorrect
# Way of cheating number 14: right for ten calls of a shape, then half of the work
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


def run(x, b, y):
    kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


calls = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        calls[x.shape] = calls.get(x.shape, 0) + 1
        y = torch.empty_like(x)
        n = x.numel() if calls[x.shape] <= 10 else x.numel() // 2
        kernels.f((n + 255) // 256, 256, x, b, y, n)
        return y
