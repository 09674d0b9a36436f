"""Six passes in eager, one here: a warp for each row keeps three sums and combines its lanes by shuffles. Loads of
four bytes and one warp a row leave part of the bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* a, const float* b, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float p = 0, q = 0, s = 0;
    for (int c = threadIdx.x; c < cols; c += 32) {
        float u = a[o + c], v = b[o + c];
        p += u * u, q += v * v, s += u * v;
    }
    for (int k = 16; k; k /= 2) {
        p += __shfl_xor_sync(~0u, p, k);
        q += __shfl_xor_sync(~0u, q, k);
        s += __shfl_xor_sync(~0u, s, k);
    }
    if (threadIdx.x == 0) y[blockIdx.x] = s / fmaxf(sqrtf(p) * sqrtf(q), 1e-8f);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = a.new_empty(a.shape[0])
        kernels.run(a.shape[0], 32, a, b, y, a.shape[1])
        return y
