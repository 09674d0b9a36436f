"""Reading the input once is the bound. A block takes a row in 16-byte loads; each thread keeps its best value and
place, strictly greater, so the first of equals stays. Shuffles and shared memory merge threads: a smaller place wins
among equal values. Narrow rows take one warp."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
__device__ void merge(float& m, int& at, float n, int other) {
    if (n > m || (n == m && other < at)) m = n, at = other;
}
template <int W> __device__ void row(const float* x, long long* y, int cols) {
    __shared__ float tops[32];
    __shared__ int places[32];
    const float* a = x + (long long)blockIdx.x * cols;
    float m = a[0];
    int at = 0;
    #pragma unroll 4
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        Pack<W> p = ((const Pack<W>*)a)[c];
        for (int k = 0; k < W; k++)
            if (p.v[k] > m) m = p.v[k], at = c * W + k;
    }
    for (int k = 16; k; k /= 2) merge(m, at, __shfl_xor_sync(~0u, m, k), __shfl_xor_sync(~0u, at, k));
    if (threadIdx.x % 32 == 0) tops[threadIdx.x / 32] = m, places[threadIdx.x / 32] = at;
    __syncthreads();
    if (threadIdx.x) return;
    for (int k = 1; k < blockDim.x / 32; k++) merge(m, at, tops[k], places[k]);
    y[blockIdx.x] = at;
}

extern "C" __global__ void argmax(const float* x, long long* y, int cols) {
    if (cols % 4 == 0) row<4>(x, y, cols);
    else row<1>(x, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = x.new_empty(rows, dtype=torch.int64)
        kernels.argmax(rows, 256 if cols > 512 else 32, x, y, cols)
        return y
