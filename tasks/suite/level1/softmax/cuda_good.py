"""Bound by memory: one read and one write. A block takes a row. Each thread keeps a running maximum and the sum
rescaled to it, in one pass of 16-byte loads; warps and then the block merge these pairs. The second pass finds the
row in the L1 cache and writes."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
__device__ void merge(float& m, float& s, float n, float t) {
    float top = fmaxf(m, n);
    s = s * expf(m - top) + t * expf(n - top);
    m = top;
}
template <int W> __device__ void row(const float* x, float* y, int cols) {
    typedef Pack<W> P;
    __shared__ float tops[32], sums[32];
    const P* a = (const P*)(x + (long long)blockIdx.x * cols);
    P* b = (P*)(y + (long long)blockIdx.x * cols);
    float m = -FLT_MAX, s = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = a[c];
        float top = m, t = 0;
        for (int k = 0; k < W; k++) top = fmaxf(top, p.v[k]);
        for (int k = 0; k < W; k++) t += expf(p.v[k] - top);
        merge(m, s, top, t);
    }
    for (int k = 16; k; k /= 2) merge(m, s, __shfl_xor_sync(~0u, m, k), __shfl_xor_sync(~0u, s, k));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = m, sums[threadIdx.x / 32] = s;
    __syncthreads();
    m = tops[0], s = sums[0];
    for (int k = 1; k < blockDim.x / 32; k++) merge(m, s, tops[k], sums[k]);
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P p = a[c];
        for (int k = 0; k < W; k++) p.v[k] = expf(p.v[k] - m) / s;
        b[c] = p;
    }
}

extern "C" __global__ void softmax(const float* x, float* y, int cols) {
    if (cols % 4 == 0) row<4>(x, y, cols);
    else row<1>(x, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, cols = x.shape
        kernels.softmax(rows, 256 if cols > 512 else 32, x, y, cols)
        return y
