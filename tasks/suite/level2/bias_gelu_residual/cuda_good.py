"""Bound by memory: eager writes and reads two temporaries. Fused, each value is read once and written once in packs
of 16 bytes; a block takes a row, so that the column of the bias needs no division. The error function hides behind
the loads."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void fused(const float* x, const float* b, const float* r, float* y, int cols) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = ((const P*)(x + o))[c], q = ((const P*)(r + o))[c], e = ((const P*)b)[c];
        for (int k = 0; k < W; k++) {
            float t = p.v[k] + e.v[k];
            q.v[k] += 0.5f * t * (1 + erff(t * 0.70710678f));
        }
        ((P*)(y + o))[c] = q;
    }
}

extern "C" __global__ void run(const float* x, const float* b, const float* r, float* y, int cols) {
    if (cols % 4 == 0) fused<4>(x, b, r, y, cols);
    else fused<1>(x, b, r, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, bias, residual, y, x.shape[1])
        return y
