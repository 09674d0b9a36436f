"""Bound by multiply-adds, where a tuned library is hard to beat. One thread for each output walks through a row of x
and a column of the weights; every product needs two loads from the cache, and these are the bound."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* w, const float* b, float* y, int M, int K, int N) {
    int n = blockIdx.x * 32 + threadIdx.x, m = blockIdx.y * 8 + threadIdx.y;
    if (m >= M || n >= N) return;
    float s = b[n];
    for (int k = 0; k < K; k++) s += x[m * K + k] * w[k * N + n];
    y[m * N + n] = 0.5f * s * (1 + erff(s * 0.70710678f));
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        (M, K), N = x.shape, weight.shape[1]
        y = x.new_empty(M, N)
        kernels.run(((N + 31) // 32, (M + 7) // 8), (32, 8), x, weight, bias, y, M, K, N)
        return y
