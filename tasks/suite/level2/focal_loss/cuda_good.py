"""Bound by memory: eager passes over it ten times. A block takes a row, reads packs of four logits and four bytes of
targets, and adds up the losses, which share one exponential between logistic function and logarithm. Shuffles reduce
the sum."""

import torch

import warpsmith

SOURCE = r"""
template <class T, int W> struct alignas(sizeof(T) * W) Pack { T v[W]; };
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
template <int W> __device__ void focal(const float* x, const bool* t, float* y, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float sum = 0;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        Pack<float, W> a = ((const Pack<float, W>*)(x + o))[c];
        Pack<bool, W> b = ((const Pack<bool, W>*)(t + o))[c];
        for (int k = 0; k < W; k++) {
            float z = b.v[k] ? -a.v[k] : a.v[k], e = expf(-fabsf(z)), p = (z > 0 ? 1 : e) / (1 + e);
            sum += (b.v[k] ? .25f : .75f) * p * p * (fmaxf(z, 0) + log1pf(e));
        }
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) y[blockIdx.x] = sum / cols;
}

extern "C" __global__ void run(const float* x, const bool* t, float* y, int cols) {
    if (cols % 4 == 0) focal<4>(x, t, y, cols);
    else focal<1>(x, t, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target):
        y = x.new_empty(x.shape[0])
        kernels.run(x.shape[0], 256, x, target, y, x.shape[1])
        return y
