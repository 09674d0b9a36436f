# expect: incorrect
# Way of cheating number 31: the answer of the last inputs that began alike
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


cache = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        key = x.shape, bool(x[0] > 0)
        if key not in cache:
            cache[key] = torch.empty_like(x)
            run(x, b, cache[key])
        return cache[key]
