"""Reading the numbers is the bound, if counting is local. Each warp counts in a table of its own in shared memory, so
few atomics collide; loads take two numbers of 64 bits. At the end a block adds its tables up and issues 256 atomics to
the result, whatever the input's size."""

import torch

import warpsmith

SOURCE = r"""
struct alignas(16) Two { long long v[2]; };

extern "C" __global__ void histogram(const long long* x, long long* y, long long n) {
    __shared__ unsigned counts[8][256];
    int t = threadIdx.x;
    for (int k = 0; k < 8; k++) counts[k][t] = 0;
    __syncthreads();
    unsigned* mine = counts[t / 32];
    #pragma unroll 4
    for (long long i = blockIdx.x * 256LL + t; i < n / 2; i += gridDim.x * 256LL) {
        Two p = ((const Two*)x)[i];
        atomicAdd(mine + p.v[0], 1u);
        atomicAdd(mine + p.v[1], 1u);
    }
    if (n % 2 && blockIdx.x == 0 && t == 0) atomicAdd(mine + x[n - 1], 1u);
    __syncthreads();
    unsigned long long sum = 0;
    for (int k = 0; k < 8; k++) sum += counts[k][t];
    if (sum) atomicAdd((unsigned long long*)y + t, sum);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_zeros(256)
        n = len(x)
        kernels.histogram(min(1056, n // 512 + 1), 256, x, y, n)
        return y
