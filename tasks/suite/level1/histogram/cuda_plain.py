"""One thread for each number adds one to its counter in global memory. Reads are coalesced, but all atomics go to 256
addresses in the L2 cache, which works off those to one address one after the other: they are the bottleneck."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void histogram(const long long* x, long long* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd((unsigned long long*)y + x[i], 1ull);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_zeros(256)
        kernels.histogram((len(x) + 255) // 256, 256, x, y, len(x))
        return y
