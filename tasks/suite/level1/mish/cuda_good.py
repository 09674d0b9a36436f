"""Bound by memory if arithmetic stays small: with e = exp(x) and t = e (e + 2), the tanh of the softplus is t / (t +
2), so one exponential and one division replace three functions. Loads of 16 bytes; the thread after the last pack
does the rest."""

import torch

import warpsmith

SOURCE = r"""
__device__ float f(float x) {
    float e = expf(fminf(x, 20)), t = e * (e + 2);
    return x * (t / (t + 2));
}

extern "C" __global__ void mish(const float* x, float* y, long long n) {
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
        kernels.mish(n // 1024 + 1, 256, x, y, n)
        return y
