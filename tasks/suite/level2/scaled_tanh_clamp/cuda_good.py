"""Bound by memory: eager passes over it five times. A block takes a row, so the shift needs no division; packs of 16
bytes are read and written once, and tanh hides behind the loads."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void fused(const float* x, const float* s, float* y, int cols) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = ((const P*)(x + o))[c], b = ((const P*)s)[c];
        for (int k = 0; k < W; k++) a.v[k] = fminf(fmaxf(3 * tanhf((a.v[k] + b.v[k]) * .4f), -2.5f), 2.75f);
        ((P*)(y + o))[c] = a;
    }
}

extern "C" __global__ void run(const float* x, const float* s, float* y, int cols) {
    if (cols % 4 == 0) fused<4>(x, s, y, cols);
    else fused<1>(x, s, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, shift):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, shift, y, x.shape[1])
        return y
