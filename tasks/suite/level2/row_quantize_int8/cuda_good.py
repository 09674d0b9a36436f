"""Bound by memory: eager passes over it six times. A block reads its row once in packs of 16 bytes into shared
memory, reduces the largest value by shuffles, and writes packs of four bytes. Division and rounding to even follow
torch bit for bit."""

import torch

import warpsmith

SOURCE = r"""
template <class T, int W> struct alignas(sizeof(T) * W) Pack { T v[W]; };
__device__ float block_max(float v) {
    __shared__ float part[32];
    for (int k = 16; k; k /= 2) v = fmaxf(v, __shfl_xor_sync(~0u, v, k));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = part[0];
    for (int k = 1; k < blockDim.x / 32; k++) v = fmaxf(v, part[k]);
    __syncthreads();
    return v;
}
template <int W> __device__ void quantize(const float* x, signed char* q, float* scale, int cols) {
    typedef Pack<float, W> P;
    extern __shared__ float4 memory[];
    P* row = (P*)memory;
    long long o = (long long)blockIdx.x * cols;
    float m = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = row[c] = ((const P*)(x + o))[c];
        for (int k = 0; k < W; k++) m = fmaxf(m, fabsf(a.v[k]));
    }
    m = fmaxf(block_max(m) * (float)(1. / 127), 1e-8f);
    if (threadIdx.x == 0) scale[blockIdx.x] = m;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = row[c];
        Pack<signed char, W> b;
        for (int k = 0; k < W; k++) b.v[k] = (int)rintf(a.v[k] / m);
        ((Pack<signed char, W>*)(q + o))[c] = b;
    }
}

extern "C" __global__ void run(const float* x, signed char* q, float* scale, int cols) {
    if (cols % 4 == 0) quantize<4>(x, q, scale, cols);
    else quantize<1>(x, q, scale, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(rows, 1)
        kernels.run(rows, 256, x, q, scale, cols, shared=4 * cols)
        return q, scale
