"""A block of 16 x 16 threads makes as many outputs from tiles of both matrices in shared memory, so each value is
read from memory once for 16 uses. One output a thread needs two loads from shared memory for each multiply-add: these
are the bottleneck."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int n) {
    __shared__ float A[16][16], B[16][16];
    int x = threadIdx.x, y = threadIdx.y, i = blockIdx.y * 16 + y, j = blockIdx.x * 16 + x;
    float s = 0;
    for (int k = 0; k < n; k += 16) {
        A[y][x] = i < n && k + x < n ? a[(long long)i * n + k + x] : 0;
        B[y][x] = j < n && k + y < n ? b[(long long)(k + y) * n + j] : 0;
        __syncthreads();
        for (int l = 0; l < 16; l++) s += A[y][l] * B[l][x];
        __syncthreads();
    }
    if (i < n && j < n) c[(long long)i * n + j] = s;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        c = torch.empty_like(a)
        n = len(a)
        kernels.matmul(((n + 15) // 16, (n + 15) // 16), (16, 16), a, b, c, n)
        return c
