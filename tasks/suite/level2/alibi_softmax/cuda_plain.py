"""Eager builds the bias in memory. One warp for each row here writes the biased scores, then reads them for the sum
and for the division, from the cache; shuffles combine the lanes."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* slopes, float* y, int Q, int K) {
    long long o = (long long)blockIdx.x * K;
    int q = blockIdx.x % Q;
    float m = -INFINITY, sum = 0, s = slopes[blockIdx.x / Q];
    for (int k = threadIdx.x; k < K; k += 32) m = fmaxf(m, y[o + k] = x[o + k] - s * abs(q - k));
    for (int l = 16; l; l /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, l));
    for (int k = threadIdx.x; k < K; k += 32) sum += y[o + k] = expf(y[o + k] - m);
    for (int l = 16; l; l /= 2) sum += __shfl_xor_sync(~0u, sum, l);
    for (int k = threadIdx.x; k < K; k += 32) y[o + k] /= sum;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, slopes):
        y, (H, Q, K) = torch.empty_like(x), x.shape
        kernels.run(H * Q, 32, x, slopes, y, Q, K)
        return y
