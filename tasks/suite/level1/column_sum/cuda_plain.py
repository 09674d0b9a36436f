"""One thread for each column, walking down the rows: neighbours read neighbouring values, so loads are coalesced, but a
few thousand threads cannot keep the memory busy. The long sum is kept in double precision."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void column_sum(const float* x, float* y, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= cols) return;
    double sum = 0;
    for (int r = 0; r < rows; r++) sum += x[(long long)r * cols + c];
    y[c] = sum;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = x.new_empty(cols)
        kernels.column_sum((cols + 63) // 64, 64, x, y, rows, cols)
        return y
