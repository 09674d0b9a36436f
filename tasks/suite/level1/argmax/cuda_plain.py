"""One warp for each row: lanes keep their best value and its place, shuffles merge them, and among equal values the
smaller place wins. Coalesced loads of four bytes; one warp a block leaves most of the memory's bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void argmax(const float* x, long long* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float m = a[0];
    int at = 0;
    for (int c = threadIdx.x; c < cols; c += 32)
        if (a[c] > m) m = a[c], at = c;
    for (int k = 16; k; k /= 2) {
        float n = __shfl_xor_sync(~0u, m, k);
        int other = __shfl_xor_sync(~0u, at, k);
        if (n > m || (n == m && other < at)) m = n, at = other;
    }
    if (threadIdx.x == 0) y[blockIdx.x] = at;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0], dtype=torch.int64)
        kernels.argmax(x.shape[0], 32, x, y, x.shape[1])
        return y
