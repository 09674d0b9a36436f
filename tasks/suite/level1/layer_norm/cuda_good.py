"""Bound by memory: one read and one write. A block sums its row, then the squared distances from the mean, then
writes; the second and third reading hit the L1 cache. Loads of 16 bytes; shuffles and shared memory for the sums;
narrow rows take a single warp."""

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
template <int W> __device__ void norm(const float* x, const float* w, const float* b, float* y, int cols) {
    typedef Pack<W> P;
    long long o = (long long)blockIdx.x * cols;
    const P* a = (const P*)(x + o);
    float sum = 0, square = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = a[c];
        for (int k = 0; k < W; k++) sum += p.v[k];
    }
    float mean = block_sum(sum) / cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = a[c];
        for (int k = 0; k < W; k++) square += (p.v[k] - mean) * (p.v[k] - mean);
    }
    float s = rsqrtf(block_sum(square) / cols + 1e-5f);
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = a[c], g = ((const P*)w)[c], h = ((const P*)b)[c];
        for (int k = 0; k < W; k++) p.v[k] = (p.v[k] - mean) * s * g.v[k] + h.v[k];
        ((P*)(y + o))[c] = p;
    }
}

extern "C" __global__ void run(const float* x, const float* w, const float* b, float* y, int cols) {
    if (cols % 4 == 0) norm<4>(x, w, b, y, cols);
    else norm<1>(x, w, b, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        rows, cols = x.shape
        kernels.run(rows, 256 if cols > 512 else 32, x, weight, bias, y, cols)
        return y
