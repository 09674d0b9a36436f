"""Eager writes all log-probabilities for the sake of one. One warp for each row here reads it twice, for the maximum
and for the sum of exponentials; shuffles combine the lanes."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const long long* target, const float* w, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float m = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, a[c]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int c = threadIdx.x; c < cols; c += 32) sum += expf(a[c] - m);
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    long long t = target[blockIdx.x];
    if (threadIdx.x == 0) y[blockIdx.x] = (m - a[t] + logf(sum)) * w[t];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target, weight):
        y = x.new_empty(x.shape[0])
        kernels.run(x.shape[0], 32, x, target, weight, y, x.shape[1])
        return y
