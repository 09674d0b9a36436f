"""Bound by memory: rows are read from random places and written in order. A block takes a token, so its index is read
once and no division is needed; threads move 16 bytes each where the width allows. Many small blocks hide the latency
of the indices."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void copy(const float* from, float* to, int dim) {
    #pragma unroll 4
    for (int c = threadIdx.x; c < dim / W; c += blockDim.x) ((Pack<W>*)to)[c] = ((const Pack<W>*)from)[c];
}

extern "C" __global__ void embedding(const long long* index, const float* table, float* y, int dim) {
    const float* from = table + index[blockIdx.x] * dim;
    float* to = y + (long long)blockIdx.x * dim;
    if (dim % 4 == 0) copy<4>(from, to, dim);
    else copy<1>(from, to, dim);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, tokens, table):
        dim = table.shape[1]
        y = table.new_empty(*tokens.shape, dim)
        kernels.embedding(tokens.numel(), 256 if dim > 512 else 64, tokens, table, y, dim)
        return y
