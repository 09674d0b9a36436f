"""Eager sorts places along with values. A bitonic network in shared memory, one block a row, padded with infinity to a
power of two: memory is read and written once, and the steps are the bound. Steps that reach no further than 32 stay
within a warp's own 64 values and need no barrier of the block."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void sort_rows(const float* x, float* y, int cols, int size) {
    extern __shared__ float row[];
    long long o = (long long)blockIdx.x * cols;
    for (int c = threadIdx.x; c < size; c += blockDim.x) row[c] = c < cols ? x[o + c] : INFINITY;
    __syncthreads();
    for (int run = 2; run <= size; run *= 2)
        for (int reach = run / 2; reach; reach /= 2) {
            if (reach < 32) __syncwarp();
            else __syncthreads();
            for (int t = threadIdx.x; t < size / 2; t += blockDim.x) {
                int i = 2 * t - (t & (reach - 1));
                float a = row[i], b = row[i + reach];
                if ((a > b) == ((i & run) == 0)) row[i] = b, row[i + reach] = a;
            }
        }
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[o + c] = row[c];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, cols = x.shape
        size = 1 << (cols - 1).bit_length()
        kernels.sort_rows(rows, max(32, min(size // 2, 1024)), x, y, cols, size, shared=4 * size)
        return y
