"""One warp for each row computes the mean and then the squared distances from it, with shuffles between lanes. The
second pass reads from the cache; four bytes a load and one warp a block leave the memory partly idle."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void variance(const float* x, float* y, int cols) {
    const float* a = x + (long long)blockIdx.x * cols;
    float sum = 0, square = 0;
    for (int c = threadIdx.x; c < cols; c += 32) sum += a[c];
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    float mean = sum / cols;
    for (int c = threadIdx.x; c < cols; c += 32) square += (a[c] - mean) * (a[c] - mean);
    for (int k = 16; k; k /= 2) square += __shfl_xor_sync(~0u, square, k);
    if (threadIdx.x == 0) y[blockIdx.x] = square / (cols - 1);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernels.variance(x.shape[0], 32, x, y, x.shape[1])
        return y
