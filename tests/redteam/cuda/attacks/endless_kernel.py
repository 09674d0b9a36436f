# expect: timeout
# Way of cheating number 51: a kernel without end
import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void f(const float* x, float* y, long long n) {
    volatile float* z = y;
    while (n > 0) z[0] = x[0];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernels.f(1, 1, x, y, x.numel())
        return y
