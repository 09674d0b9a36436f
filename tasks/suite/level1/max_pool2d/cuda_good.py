"""Bound by memory, if the cache serves what windows share. A thread makes four pixels below one another and keeps the
maxima of three neighbours of each row, so the row between two windows is loaded once for both: 27 loads in place of
36, and one division of the index for four pixels."""

import torch

import warpsmith

SOURCE = r"""
__device__ float across(const float* x, int i, int j, int H, int W) {
    if (i < 0 || i >= H) return -INFINITY;
    x += i * W;
    float m = x[2 * j];
    if (j > 0) m = fmaxf(m, x[2 * j - 1]);
    if (2 * j + 1 < W) m = fmaxf(m, x[2 * j + 1]);
    return m;
}

extern "C" __global__ void max_pool(const float* x, float* y, int H, int W, int P, int Q) {
    int t = blockIdx.y * blockDim.x + threadIdx.x, i = t / Q * 4, j = t % Q;
    if (i >= P) return;
    x += (long long)blockIdx.x * H * W;
    y += (long long)blockIdx.x * P * Q + i * Q + j;
    float rows[9];
    for (int k = 0; k < 9; k++) rows[k] = across(x, 2 * i - 1 + k, j, H, W);
    for (int k = 0; k < 4 && i + k < P; k++) y[k * Q] = fmaxf(fmaxf(rows[2 * k], rows[2 * k + 1]), rows[2 * k + 2]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, W = x.shape
        P, Q = (H + 1) // 2, (W + 1) // 2
        y = x.new_empty(N, C, P, Q)
        strips = (P + 3) // 4 * Q
        kernels.max_pool((N * C, (strips + 127) // 128), 128, x, y, H, W, P, Q)
        return y
