"""Bound by memory: eager stores gelu(gate) and reads it again. Fused, both halves are read once in packs of 16 bytes;
tanh becomes a logistic function, one exponential and one division, which hide behind the loads. A block takes a
row."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void fused(const float* x, float* y, int h) {
    typedef Pack<W> P;
    const float* u = x + blockIdx.x * 2LL * h;
    P* o = (P*)(y + (long long)blockIdx.x * h);
    for (int c = threadIdx.x; c < h / W; c += blockDim.x) {
        P a = ((const P*)u)[c], g = ((const P*)(u + h))[c];
        for (int k = 0; k < W; k++) {
            float t = g.v[k];
            a.v[k] *= t / (1 + expf(-1.5957691f * t * (1 + .044715f * t * t)));
        }
        o[c] = a;
    }
}

extern "C" __global__ void run(const float* x, float* y, int h) {
    if (h % 4 == 0) fused<4>(x, y, h);
    else fused<1>(x, y, h);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, h = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, h)
        kernels.run(rows, 256, x, y, h)
        return y
