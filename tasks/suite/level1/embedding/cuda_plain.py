"""One thread for each value of the output: it divides to find its token, reads the index, then the value. Accesses are
coalesced within a row, but four bytes a thread and a 64-bit division for each are more work than the copy itself."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void embedding(const long long* index, const float* table, float* y, long long n, int dim) {
    long long t = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (t < n) y[t] = table[index[t / dim] * dim + t % dim];
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, tokens, table):
        dim = table.shape[1]
        y = table.new_empty(*tokens.shape, dim)
        kernels.embedding((y.numel() + 255) // 256, 256, tokens, table, y, y.numel(), dim)
        return y
