"""Bound by memory: eager stores two temporaries. Each thread reads packs of four values of both inputs and four bytes
of the mask, and writes a pack; the last values, fewer than four, go to one thread each."""

import torch

import warpsmith

SOURCE = r"""
template <class T> struct alignas(4 * sizeof(T)) Pack { T v[4]; };
extern "C" __global__ void run(const float* x, const bool* keep, const float* r, float* y, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x, packs = n / 4;
    if (i < packs) {
        Pack<float> a = ((const Pack<float>*)x)[i], b = ((const Pack<float>*)r)[i];
        Pack<bool> m = ((const Pack<bool>*)keep)[i];
        for (int k = 0; k < 4; k++) b.v[k] += m.v[k] ? a.v[k] * (1 / .9f) : 0;
        ((Pack<float>*)y)[i] = b;
    } else if ((i += packs * 3) < n) {
        y[i] = r[i] + (keep[i] ? x[i] * (1 / .9f) : 0);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep, residual):
        y = torch.empty_like(x)
        kernels.run((x.numel() // 4 + 258) // 256, 256, x, keep, residual, y, x.numel())
        return y
