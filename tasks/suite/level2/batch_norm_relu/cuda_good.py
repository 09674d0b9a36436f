"""Bound by memory: eager passes over it twice. A block takes one channel of one sample, so scale and shift are two
numbers; packs of 16 bytes are read and written once, with a multiply-add and a maximum for each value."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W>
__device__ void norm(const float* x, const float* m, const float* v, const float* w, const float* b, float* y, int C,
                     int L) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * L;
    int c = blockIdx.x % C;
    float a = w[c] * rsqrtf(v[c] + 1e-5f), d = b[c] - m[c] * a;
    for (int l = threadIdx.x; l < L / W; l += blockDim.x) {
        P p = ((const P*)(x + o))[l];
        for (int k = 0; k < W; k++) p.v[k] = fmaxf(p.v[k] * a + d, 0);
        ((P*)(y + o))[l] = p;
    }
}

extern "C" __global__ void run(const float* x, const float* m, const float* v, const float* w, const float* b,
                            float* y, int C, int L) {
    if (L % 4 == 0) norm<4>(x, m, v, w, b, y, C, L);
    else norm<1>(x, m, v, w, b, y, C, L);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mean, var, weight, bias):
        y, (C, L) = torch.empty_like(x), x.shape[1:]
        kernels.run(len(x) * C, 256, x, mean, var, weight, bias, y, C, L)
        return y
