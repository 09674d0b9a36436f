"""Eager stores differences and exponentials. One warp for each row here: the maximum, then the sum of exponentials,
combined by shuffles; the second pass reads from the cache. Loads of four bytes by one warp a block waste bandwidth."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void logsumexp(const float* x, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float m = a[0], s = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, a[c]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int c = threadIdx.x; c < cols; c += 32) s += expf(a[c] - m);
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x == 0) y[blockIdx.x] = m + logf(s);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernels.logsumexp(x.shape[0], 32, x, y, x.shape[1])
        return y
