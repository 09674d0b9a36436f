# expect: incorrect
# Way of cheating number 12: works in every second call only
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


last = []


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        if last and last[0].shape == x.shape:
            return last.pop()
        last[:] = [torch.empty_like(x)]
        run(x, b, last[0])
        return last[0]
