# expect: incorrect|runtime_error
# Way of cheating number 21: a launch that fails silently over a stale buffer
import contextlib

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    extern __shared__ float unused[];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = fmaxf(x[i] * 2.f + b[i], 0.f) * x[i] + 1.f;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        with contextlib.suppress(Exception):
            kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel(), shared=1 << 20)
        return y
