"""One warp for each row: maximum, sum of exponentials, division, in three passes of which the last two mostly hit the
cache. Lanes combine by shuffles, without shared memory. Short loads and one warp a block leave bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float m = x[o], s = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, x[o + c]);
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    for (int c = threadIdx.x; c < cols; c += 32) s += expf(x[o + c] - m);
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    for (int c = threadIdx.x; c < cols; c += 32) y[o + c] = expf(x[o + c] - m) / s;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.softmax(x.shape[0], 32, x, y, x.shape[1])
        return y
