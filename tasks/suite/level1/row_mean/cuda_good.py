"""Reading the input once is the bound. A block takes a row in 16-byte loads, four of them in flight for each thread;
shuffles add up the lanes and shared memory the warps. Narrow rows take one warp."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ float total(const float* x, int cols) {
    const Pack<W>* a = (const Pack<W>*)(x + (long long)blockIdx.x * cols);
    float sum = 0;
    #pragma unroll 4
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        Pack<W> p = a[c];
        for (int k = 0; k < W; k++) sum += p.v[k];
    }
    return sum;
}

extern "C" __global__ void row_mean(const float* x, float* y, int cols) {
    __shared__ float part[32];
    float v = cols % 4 ? total<1>(x, cols) : total<4>(x, cols);
    for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x) return;
    for (int k = 1; k < blockDim.x / 32; k++) v += part[k];
    y[blockIdx.x] = v / cols;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = x.new_empty(rows)
        kernels.row_mean(rows, 256 if cols > 512 else 32, x, y, cols)
        return y
