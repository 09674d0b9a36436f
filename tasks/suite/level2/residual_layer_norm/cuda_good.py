"""Bound by memory: eager stores the sum and reads it again. A block reads its row of both inputs once in packs of 16
bytes, holds the sum in shared memory while mean and variance are reduced by shuffles, and writes the result."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
__device__ float block_sum(float v) {
    __shared__ float part[32];
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = 0;
    for (int k = 0; k < blockDim.x / 32; k++) v += part[k];
    __syncthreads();
    return v;
}
template <int W>
__device__ void norm(const float* x, const float* s, const float* w, const float* b, float* y, int cols) {
    typedef Pack<W> P;
    extern __shared__ float4 memory[];
    P* row = (P*)memory;
    long long o = (long long)blockIdx.x * cols;
    float m = 0, q = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = ((const P*)(x + o))[c], d = ((const P*)(s + o))[c];
        for (int k = 0; k < W; k++) m += a.v[k] += d.v[k];
        row[c] = a;
    }
    m = block_sum(m) / cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x)
        for (int k = 0; k < W; k++) q += (row[c].v[k] - m) * (row[c].v[k] - m);
    q = rsqrtf(block_sum(q) / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = row[c], g = ((const P*)w)[c], d = ((const P*)b)[c];
        for (int k = 0; k < W; k++) a.v[k] = (a.v[k] - m) * q * g.v[k] + d.v[k];
        ((P*)(y + o))[c] = a;
    }
}

extern "C" __global__ void run(const float* x, const float* s, const float* w, const float* b, float* y, int cols) {
    if (cols % 4 == 0) norm<4>(x, s, w, b, y, cols);
    else norm<1>(x, s, w, b, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight, bias):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, residual, weight, bias, y, x.shape[1], shared=4 * x.shape[1])
        return y
