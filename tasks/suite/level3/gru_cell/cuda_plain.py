"""Reading weights is the bound. One warp for each unit of each sample computes the six sums one after the other,
lanes side by side in a row of weights; every row is read again for each sample."""

import torch

import warpsmith

SOURCE = r"""
__device__ float dot(const float* a, const float* b, int K) {
    float t = 0;
    for (int k = threadIdx.x; k < K; k += 32) t += a[k] * b[k];
    for (int l = 16; l; l /= 2) t += __shfl_xor_sync(~0u, t, l);
    return t;
}
extern "C" __global__ void gru(const float* x, const float* h, const float* wi, const float* wh, const float* bi,
                               const float* bh, float* y, int K, int N) {
    int n = blockIdx.x, b = blockIdx.y;
    float s[3], u[3];
    for (int j = 0; j < 3; j++) {
        long long r = j * N + n;
        s[j] = bi[r] + dot(x + b * K, wi + r * K, K);
        u[j] = bh[r] + dot(h + b * N, wh + r * N, N);
    }
    float t = tanhf(s[2] + u[2] / (1 + expf(-s[0] - u[0])));
    if (threadIdx.x == 0) y[b * N + n] = t + (h[b * N + n] - t) / (1 + expf(-s[1] - u[1]));
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.cell = torch.nn.GRUCell(inputs, units)

    def forward(self, x, h):
        c, y = self.cell, torch.empty_like(h)
        (B, K), N = x.shape, h.shape[1]
        kernels.gru((N, B), 32, x, h, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh, y, K, N)
        return y
