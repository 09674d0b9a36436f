"""Eager stores a square matrix of scores for each head. One block for each query of each head here keeps that query's
scores in shared mem; all keys and values are read again by every query, which is the bound."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void attention(const float* z, float* y, int T, int S, int D) {
    extern __shared__ float p[];
    int i = blockIdx.x, h = blockIdx.y * D;
    for (int j = threadIdx.x; j < T; j += blockDim.x) {
        float s = 0;
        for (int d = h; d < h + D; d++) s += z[i * 3 * S + d] * z[j * 3 * S + S + d];
        p[j] = s / sqrtf(D);
    }
    __syncthreads();
    float m = -INFINITY;
    for (int j = 0; j < T; j++) m = fmaxf(m, p[j]);
    for (int d = h + threadIdx.x; d < h + D; d += blockDim.x) {
        float s = 0, sum = 0;
        for (int j = 0; j < T; j++) {
            float e = expf(p[j] - m);
            sum += e;
            s += e * z[j * 3 * S + 2 * S + d];
        }
        y[i * S + d] = s / sum;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, heads, size):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(heads * size, 3 * heads * size)

    def forward(self, x):
        y, T, H, D = torch.empty_like(x), x.shape[0], self.heads, x.shape[1] // self.heads
        kernels.attention((T, H), 128, self.qkv(x), y, T, H * D, D, shared=4 * T)
        return y
