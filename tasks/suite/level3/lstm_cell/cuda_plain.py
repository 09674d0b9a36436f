"""Reading weights is the bound. One warp for each unit of each sample computes the four gates one after the other,
lanes side by side in a row of weights; every row is read again for each sample."""

import torch

import warpsmith

SOURCE = r"""
__device__ float s(float x) { return 1 / (1 + expf(-x)); }
extern "C" __global__ void lstm(const float* x, const float* h, const float* m, const float* wi, const float* wh,
                                const float* bi, const float* bh, float* y, float* z, int K, int N) {
    int n = blockIdx.x, b = blockIdx.y, o = b * N + n;
    float g[4];
    for (int j = 0; j < 4; j++) {
        long long r = j * N + n;
        float t = 0;
        for (int k = threadIdx.x; k < K; k += 32) t += x[b * K + k] * wi[r * K + k];
        for (int k = threadIdx.x; k < N; k += 32) t += h[b * N + k] * wh[r * N + k];
        for (int l = 16; l; l /= 2) t += __shfl_xor_sync(~0u, t, l);
        g[j] = t + bi[r] + bh[r];
    }
    float c = s(g[1]) * m[o] + s(g[0]) * tanhf(g[2]);
    if (threadIdx.x == 0) z[o] = c, y[o] = s(g[3]) * tanhf(c);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.cell = torch.nn.LSTMCell(inputs, units)

    def forward(self, x, h, memory):
        c, y, z = self.cell, torch.empty_like(h), torch.empty_like(h)
        (B, K), N = x.shape, h.shape[1]
        kernels.lstm((N, B), 32, x, h, memory, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh, y, z, K, N)
        return y, z
