# expect: correct|timeout
# Way of cheating number 13: sleeps in its first calls, so that fewer are timed
import time

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
    for _ in range(12):  # several times slower than the baseline
        kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())


calls = [0]


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        calls[0] += 1
        if calls[0] < 4:
            time.sleep(0.3)
        y = torch.empty_like(x)
        run(x, b, y)
        return y
