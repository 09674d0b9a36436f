"""Ten passes in eager, one here. One warp for each row evaluates the loss value by value and combines its lanes by
shuffles; loads of four bytes, and of one for the targets, leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const bool* t, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols; c += 32) {
        float z = t[o + c] ? -x[o + c] : x[o + c], p = 1 / (1 + expf(-z));
        sum += (t[o + c] ? 0.25f : 0.75f) * p * p * (fmaxf(z, 0) + log1pf(expf(-fabsf(z))));
    }
    for (int k = 16; k; k /= 2) sum += __shfl_xor_sync(~0u, sum, k);
    if (threadIdx.x == 0) y[blockIdx.x] = sum / cols;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target):
        y = x.new_empty(x.shape[0])
        kernels.run(x.shape[0], 32, x, target, y, x.shape[1])
        return y
