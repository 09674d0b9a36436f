"""Bound by multiply-adds. A block of 16 by 16 threads loads square tiles of both matrices into shared memory, one
output for each thread; every product needs two loads from shared memory, and these are the bound."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void linear(const float* x, const float* w, const float* b, const float* res, float* y, int R,
                                  int K, int N) {
    __shared__ float A[16][17], B[16][17];
    int i = threadIdx.y, j = threadIdx.x, r = blockIdx.y * 16 + i, n = blockIdx.x * 16 + j;
    float s = 0;
    for (int k = 0; k < K; k += 16) {
        A[i][j] = r < R && k + j < K ? x[r * K + k + j] : 0;
        B[i][j] = n - j + i < N && k + j < K ? w[(n - j + i) * K + k + j] : 0;
        __syncthreads();
        for (int c = 0; c < 16; c++) s += A[i][c] * B[j][c];
        __syncthreads();
    }
    if (r >= R || n >= N) return;
    s += b[n];
    y[r * N + n] = res ? s + res[r * N + n] : fmaxf(s, 0);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim)
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def linear(self, x, layer, res):
        (R, K), N = x.shape, layer.out_features
        y = x.new_empty(R, N)
        blocks = (N + 15) // 16, (R + 15) // 16
        kernels.linear(blocks, (16, 16), x, layer.weight, layer.bias, res, y, R, K, N)
        return y

    def forward(self, x):
        return self.linear(self.linear(self.norm(x), self.up, None), self.down, x)
