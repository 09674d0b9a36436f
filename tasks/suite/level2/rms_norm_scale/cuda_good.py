"""Bound by memory; eager passes over the full size four times. A block reads its row once in packs of 16 bytes into
shared memory, warps add up the squares by shuffles, and the scaled row is written from there: one read and one
write."""

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
template <int W> __device__ void norm(const float* x, const float* w, float* y, int cols) {
    typedef Pack<W> P;
    extern __shared__ float4 memory[];
    P* row = (P*)memory;
    long long o = (long long)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = row[c] = ((const P*)(x + o))[c];
        for (int k = 0; k < W; k++) sum += a.v[k] * a.v[k];
    }
    float s = rsqrtf(block_sum(sum) / cols + 1e-6f);
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P a = row[c], g = ((const P*)w)[c];
        for (int k = 0; k < W; k++) a.v[k] *= s * (1 + g.v[k]);
        ((P*)(y + o))[c] = a;
    }
}

extern "C" __global__ void run(const float* x, const float* w, float* y, int cols) {
    if (cols % 4 == 0) norm<4>(x, w, y, cols);
    else norm<1>(x, w, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, x, weight, y, x.shape[1], shared=4 * x.shape[1])
        return y
