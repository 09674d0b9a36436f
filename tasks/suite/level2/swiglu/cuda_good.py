"""Bound by memory: eager writes silu(gate) and reads it again. Fused, gate and up are read once in packs of 16 bytes
and the product is written once. Both halves of a row belong to one block, so no index needs a division."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void fused(const float* x, float* y, int h) {
    typedef Pack<W> P;
    const float* g = x + blockIdx.x * 2LL * h;
    P* o = (P*)(y + (long long)blockIdx.x * h);
    for (int c = threadIdx.x; c < h / W; c += blockDim.x) {
        P a = ((const P*)g)[c], u = ((const P*)(g + h))[c];
        for (int k = 0; k < W; k++) u.v[k] *= a.v[k] / (1 + expf(-a.v[k]));
        o[c] = u;
    }
}

extern "C" __global__ void swiglu(const float* x, float* y, int h) {
    if (h % 4 == 0) fused<4>(x, y, h);
    else fused<1>(x, y, h);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, h = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, h)
        kernels.swiglu(rows, 256, x, y, h)
        return y
