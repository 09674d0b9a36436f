"""Four passes in eager. One warp for each row here: it looks for the maximum, adds up the exponentials, and writes,
reading the row three times, mostly from the cache. Shuffles combine the lanes."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const bool* mask, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float m = -INFINITY, sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32)
        if (mask[o + c]) m = fmaxf(m, x[o + c]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int c = threadIdx.x; c < cols; c += 32) {
        y[o + c] = mask[o + c] ? expf((x[o + c] - m) * 0.125f) : 0;
        sum += y[o + c];
    }
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    for (int c = threadIdx.x; c < cols; c += 32) y[o + c] /= sum;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 32, x, mask, y, x.shape[1])
        return y
