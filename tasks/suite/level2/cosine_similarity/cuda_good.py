"""Bound by memory: eager stores three products of the full size. A block takes a row and reads both inputs once in
packs of 16 bytes; three sums are kept in registers and reduced by shuffles, and one number is written."""

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
template <int W> __device__ void cosine(const float* a, const float* b, float* y, int cols) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * cols;
    float p = 0, q = 0, s = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P u = ((const P*)(a + o))[c], v = ((const P*)(b + o))[c];
        for (int k = 0; k < W; k++) {
            p += u.v[k] * u.v[k];
            q += v.v[k] * v.v[k];
            s += u.v[k] * v.v[k];
        }
    }
    p = block_sum(p);
    q = block_sum(q);
    s = block_sum(s);
    if (threadIdx.x == 0) y[blockIdx.x] = s / fmaxf(sqrtf(p) * sqrtf(q), 1e-8f);
}

extern "C" __global__ void run(const float* a, const float* b, float* y, int cols) {
    if (cols % 4 == 0) cosine<4>(a, b, y, cols);
    else cosine<1>(a, b, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = a.new_empty(a.shape[0])
        kernels.run(a.shape[0], 256, a, b, y, a.shape[1])
        return y
