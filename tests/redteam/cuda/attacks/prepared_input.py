# expect: incorrect
# Way of cheating number 32: treats one of its inputs as a weight that never changes
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) { float t = x[i] * 2.f + b[i]; y[i] = fmaxf(t, 0.f) * x[i] + 1.f; }
}
"""
kernels = warpsmith.load_cuda(SOURCE)
prepared = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        b = prepared.setdefault((b.data_ptr(), b.shape), b.clone())
        y = torch.empty_like(x)
        kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())
        return y
