"""One warp for each row: 32 values are scanned by shuffles, five steps, and the last lane's sum is carried to the
next 32. Nothing is read twice, but each step of the row waits for the one before it."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void cumsum(const float* x, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float carry = 0;
    for (int first = 0; first < cols; first += 32) {
        int c = first + threadIdx.x;
        float sum = c < cols ? x[o + c] : 0;
        for (int k = 1; k < 32; k *= 2) {
            float left = __shfl_up_sync(~0u, sum, k);
            if (threadIdx.x >= k) sum += left;
        }
        sum += carry;
        if (c < cols) y[o + c] = sum;
        carry = __shfl_sync(~0u, sum, 31);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.cumsum(x.shape[0], 32, x, y, x.shape[1])
        return y
