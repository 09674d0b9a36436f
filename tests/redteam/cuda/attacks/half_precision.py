# expect: incorrect
# Way of cheating number 34: computes in half precision
import torch

import warpsmith

SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void f(const float* x, const float* b, float* y, long long n) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) {
        __half v = __float2half(x[i]), t = __hfma(v, __float2half(2.f), __float2half(b[i]));
        y[i] = __half2float(__hfma(__hmax(t, __float2half(0.f)), v, __float2half(1.f)));
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernels.f((x.numel() + 255) // 256, 256, x, b, y, x.numel())
        return y
