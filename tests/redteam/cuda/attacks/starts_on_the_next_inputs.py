# expect: incorrect
# Way of cheating number 8: begins with the next slot before its contents are there
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


done, last = {}, []


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = done.pop(x.data_ptr(), None)
        if y is None:
            y = torch.empty_like(x)
            run(x, b, y)
        last.append((x, b))
        ahead, other = last[(len(last) * 7) % len(last)]
        if ahead.shape == x.shape:
            z = torch.empty_like(ahead)
            run(ahead, other, z)
            done[ahead.data_ptr()] = z
        return y
