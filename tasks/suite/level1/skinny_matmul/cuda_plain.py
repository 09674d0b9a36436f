"""The output is narrow, so the work is reading a. One thread for each output walks along a row of a and a column of b:
neighbours share the row through the cache, but different rows lie far apart, so loads are poorly coalesced."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int M, int K, int N) {
    long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x, i = t / N, j = t % N;
    if (i >= M) return;
    float s = 0;
    for (int k = 0; k < K; k++) s += a[i * K + k] * b[(long long)k * N + j];
    c[t] = s;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        (M, K), N = a.shape, b.shape[1]
        c = a.new_empty(M, N)
        kernels.matmul((M * N + 255) // 256, 256, a, b, c, M, K, N)
        return c
