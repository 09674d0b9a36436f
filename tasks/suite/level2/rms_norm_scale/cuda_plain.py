"""Four passes over memory in eager. One warp for each row here: lanes add up squares and combine them by shuffles,
then the row is read again, from the cache, and scaled. Loads of four bytes leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* w, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum += x[o + c] * x[o + c];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    float s = rsqrtf(sum / cols + 1e-6f);
    for (int c = threadIdx.x; c < cols; c += 32) y[o + c] = x[o + c] * s * (1 + w[c]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 32, x, weight, y, x.shape[1])
        return y
