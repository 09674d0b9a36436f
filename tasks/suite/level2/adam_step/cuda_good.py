"""Bound by memory: eager runs fourteen kernels over it. One thread reads four packs of 16 bytes and writes three, so
that each value crosses the bus once; the last values, fewer than four, go to one thread each. Constants are
folded."""

import torch

import warpsmith

SOURCE = r"""
struct alignas(16) F4 { float v[4]; };
__device__ void step(float& p, float g, float& m, float& v) {
    m = .9f * m + .1f * g;
    v = .999f * v + .001f * g * g;
    p -= .153534f * m / (sqrtf(v * 100.450825f) + 1e-8f);
}

extern "C" __global__ void adam(const float* p, const float* g, const float* m, const float* v, float* q, float* n,
                                float* w, long long size) {
    long long i = blockIdx.x * 256LL + threadIdx.x, packs = size / 4;
    if (i < packs) {
        F4 a = ((const F4*)p)[i], b = ((const F4*)g)[i], c = ((const F4*)m)[i], d = ((const F4*)v)[i];
        for (int k = 0; k < 4; k++) step(a.v[k], b.v[k], c.v[k], d.v[k]);
        ((F4*)q)[i] = a;
        ((F4*)n)[i] = c;
        ((F4*)w)[i] = d;
    } else if ((i += packs * 3) < size) {
        float a = p[i], c = m[i], d = v[i];
        step(a, g[i], c, d);
        q[i] = a, n[i] = c, w[i] = d;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        q, n, w = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
        kernels.adam((p.numel() // 4 + 258) // 256, 256, p, g, m, v, q, n, w, p.numel())
        return q, n, w
