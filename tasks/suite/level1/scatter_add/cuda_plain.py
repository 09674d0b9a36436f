"""One thread for each value of a message: it divides to find its edge, reads the target and adds with an atomic of
four bytes. The number of atomics, one a value, is what the L2 cache has to work off."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void copy(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}

extern "C" __global__ void scatter(const long long* target, const float* x, float* y, long long n, int dim) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) atomicAdd(y + target[i / dim] * dim + i % dim, x[i]);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, nodes, target, messages):
        y = torch.empty_like(nodes)
        n, m = nodes.numel(), messages.numel()
        kernels.copy((n + 255) // 256, 256, nodes, y, n)
        kernels.scatter((m + 255) // 256, 256, target, messages, y, m, nodes.shape[1])
        return y
