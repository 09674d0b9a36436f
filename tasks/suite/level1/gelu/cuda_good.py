"""One read and one write a value: bound by memory as long as enough bytes are in flight. Each thread moves 16 bytes and
evaluates four error functions, which hide behind the loads of other warps; the thread after the last pack does the
rest."""

import torch

import warpsmith

SOURCE = r"""
__device__ float f(float x) { return .5f * x * (1 + erff(x * .70710678f)); }

extern "C" __global__ void gelu(const float* x, float* y, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n / 4) {
        float4 v = ((const float4*)x)[i];
        ((float4*)y)[i] = make_float4(f(v.x), f(v.y), f(v.z), f(v.w));
    } else if (i == n / 4)
        for (long long k = 4 * i; k < n; k++) y[k] = f(x[k]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        n = x.numel()
        kernels.gelu(n // 1024 + 1, 256, x, y, n)
        return y
