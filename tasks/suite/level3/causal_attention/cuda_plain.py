"""Eager stores the square matrix of scores and computes its masked half too. One block for each query here keeps that
query's scores in shared memory; keys stop at the diagonal. All keys and values are read again by every query."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void attention(const float* z, float* y, int D) {
    extern __shared__ float p[];
    int i = blockIdx.x;
    for (int j = threadIdx.x; j <= i; j += blockDim.x) {
        float s = 0;
        for (int d = 0; d < D; d++) s += z[i * 3 * D + d] * z[j * 3 * D + D + d];
        p[j] = s / sqrtf(D);
    }
    __syncthreads();
    float m = -INFINITY;
    for (int j = 0; j <= i; j++) m = fmaxf(m, p[j]);
    for (int d = threadIdx.x; d < D; d += blockDim.x) {
        float s = 0, sum = 0;
        for (int j = 0; j <= i; j++) {
            float e = expf(p[j] - m);
            sum += e;
            s += e * z[j * 3 * D + 2 * D + d];
        }
        y[i * D + d] = s / sum;
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        y, (T, D) = torch.empty_like(x), x.shape
        z = self.qkv(torch.nn.functional.rms_norm(x, x.shape[1:]))
        kernels.attention(T, 128, z, y, D, shared=4 * T)
        return y
