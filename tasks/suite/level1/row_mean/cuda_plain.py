"""One warp for each row: every lane adds up each 32nd value and shuffles combine the lanes. Coalesced, but with four
bytes a load and one warp a block too few bytes are in flight for the memory."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void row_mean(const float* x, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum += a[c];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x == 0) y[blockIdx.x] = sum / cols;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernels.row_mean(x.shape[0], 32, x, y, x.shape[1])
        return y
