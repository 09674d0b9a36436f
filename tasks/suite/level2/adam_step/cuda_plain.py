"""Fourteen passes in eager, one here: a thread for each value follows the formula. Loads of four bytes and few of
them in flight for each thread leave part of the bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void adam(const float* p, const float* g, const float* m, const float* v, float* q, float* n,
                                float* w, long long size) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i >= size) return;
    float s = 0.9f * m[i] + 0.1f * g[i], t = 0.999f * v[i] + 0.001f * g[i] * g[i];
    n[i] = s;
    w[i] = t;
    q[i] = p[i] - 0.1f * (s / 0.65132156f) / (sqrtf(t / 0.0099551198f) + 1e-8f);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        q, n, w = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
        kernels.adam((p.numel() + 255) // 256, 256, p, g, m, v, q, n, w, p.numel())
        return q, n, w
