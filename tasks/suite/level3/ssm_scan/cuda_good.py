"""Eager launches five small kernels for each time step. One thread follows a channel of a sequence with its state in
a register; neighbours read neighbouring channels. Loads do not depend on the state, so sixteen steps are fetched
ahead, which keeps enough bytes in flight."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void scan(const float* __restrict__ x, const float* __restrict__ decay,
                                const float* __restrict__ out, float* __restrict__ y, int T, int D) {
    int d = blockIdx.x * 128 + threadIdx.x;
    if (d >= D) return;
    float a = 1 / (1 + expf(-decay[d])), w = out[d], h = 0, u[16];
    long long o = (long long)blockIdx.y * T * D + d;
    for (int t = 0; t < T; t += 16) {
        #pragma unroll
        for (int k = 0; k < 16; k++) u[k] = t + k < T ? x[o + (long long)(t + k) * D] : 0;
        #pragma unroll
        for (int k = 0; k < 16; k++)
            if (t + k < T) {
                h = a * h + u[k];
                y[o + (long long)(t + k) * D] = w * h + u[k];
            }
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(dim) + 1)
        self.out = torch.nn.Parameter(torch.randn(dim))

    def forward(self, x):
        y, (B, T, D) = torch.empty_like(x), x.shape
        kernels.scan(((D + 127) // 128, B), 128, x, self.decay, self.out, y, T, D)
        return y
