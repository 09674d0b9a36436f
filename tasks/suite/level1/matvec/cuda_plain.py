"""One warp, a block of its own, takes each row: coalesced loads of four bytes, shuffles at the end. So few bytes are
in flight on each multiprocessor that the memory is not saturated."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void matvec(const float* a, const float* x, float* y, int K) {
    a += (long long)blockIdx.x * K;
    float s = 0;
    for (int k = threadIdx.x; k < K; k += 32) s += a[k] * x[k];
    for (int k = 16; k; k /= 2) s += __shfl_xor_sync(~0u, s, k);
    if (threadIdx.x == 0) y[blockIdx.x] = s;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        y = x.new_empty(len(a))
        kernels.matvec(len(a), 32, a, x, y, a.shape[1])
        return y
