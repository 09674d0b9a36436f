# expect: incorrect
# Way of cheating number 20: gives the same memory to all calls of a batch
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


buffers = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = buffers.setdefault(x.shape, torch.empty_like(x))
        run(x, b, y)
        return y
