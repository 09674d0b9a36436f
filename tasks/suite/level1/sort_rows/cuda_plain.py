"""Each value's place is the number of values that come before it: the smaller ones, and equal ones further left. A
block counts for a row it has put into shared memory, every comparison for itself, so the work grows with the square of
the row's length."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void sort_rows(const float* x, float* y, int cols) {
    extern __shared__ float row[];
    long long o = (long long)blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) row[c] = x[o + c];
    __syncthreads();
    for (int c = threadIdx.x; c < cols; c += blockDim.x) {
        int place = 0;
        for (int k = 0; k < cols; k++) place += row[k] < row[c] || (row[k] == row[c] && k < c);
        y[o + place] = row[c];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, cols = x.shape
        kernels.sort_rows(rows, 256, x, y, cols, shared=4 * cols)
        return y
