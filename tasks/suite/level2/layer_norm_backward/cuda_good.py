"""Bound by memory: eager passes over it a dozen times. A block reads both rows once in packs of 16 bytes into shared
memory, keeps them there while four sums are reduced by shuffles, and writes the gradient: two reads and one write."""

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
template <int W> __device__ void grad(const float* dy, const float* x, const float* w, float* dx, int cols) {
    typedef Pack<W> P;
    extern __shared__ float4 memory[];
    P *a = (P*)memory, *g = a + cols / W;
    long long o = (long long)blockIdx.x * cols;
    float m = 0, q = 0, s = 0, p = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P u = a[c] = ((const P*)(x + o))[c], d = ((const P*)(dy + o))[c], e = ((const P*)w)[c];
        for (int k = 0; k < W; k++) m += u.v[k], d.v[k] *= e.v[k];
        g[c] = d;
    }
    m = block_sum(m) / cols;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x)
        for (int k = 0; k < W; k++) {
            float u = a[c].v[k] -= m, d = g[c].v[k];
            q += u * u, s += d, p += d * u;
        }
    float z = rsqrtf(block_sum(q) / cols + 1e-5f);
    s = block_sum(s) / cols;
    p = block_sum(p) / cols * z * z;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        P u = a[c], d = g[c];
        for (int k = 0; k < W; k++) d.v[k] = z * (d.v[k] - s - u.v[k] * p);
        ((P*)(dx + o))[c] = d;
    }
}

extern "C" __global__ void run(const float* dy, const float* x, const float* w, float* dx, int cols) {
    if (cols % 4 == 0) grad<4>(dy, x, w, dx, cols);
    else grad<1>(dy, x, w, dx, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, dy, x, weight):
        y = torch.empty_like(x)
        kernels.run(x.shape[0], 256, dy, x, weight, y, x.shape[1], shared=8 * x.shape[1])
        return y
