"""Bound by memory. A thread makes four neighbouring values from one 16-byte load and two values on either side, which
the L1 cache holds: five loads in place of twenty. A block stays in one row, so its weights and its channel are found
once."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void taps(const float* x, const float* w, float* y, int C, int T) {
    int t = (blockIdx.y * blockDim.x + threadIdx.x) * W, c = blockIdx.x % C;
    if (t >= T) return;
    x += (long long)blockIdx.x * T;
    float u[W + 4];
    Pack<W> p = *(const Pack<W>*)(x + t), o = {};
    for (int k = 0; k < 2; k++) {
        u[k] = t + k >= 2 ? x[t + k - 2] : 0;
        u[W + 2 + k] = t + W + k < T ? x[t + W + k] : 0;
    }
    for (int k = 0; k < W; k++) u[k + 2] = p.v[k];
    for (int k = 0; k < 5; k++) {
        float weight = w[c * 5 + k];
        for (int i = 0; i < W; i++) o.v[i] += weight * u[i + k];
    }
    *(Pack<W>*)(y + (long long)blockIdx.x * T + t) = o;
}

extern "C" __global__ void conv(const float* x, const float* w, float* y, int C, int T) {
    if (T % 4 == 0) taps<4>(x, w, y, C, T);
    else taps<1>(x, w, y, C, T);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        N, C, T = x.shape
        threads = T if T % 4 else T // 4
        kernels.conv((N * C, (threads + 255) // 256), 256, x, weight, y, C, T)
        return y
