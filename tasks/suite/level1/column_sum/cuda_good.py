"""Reading once is the bound, and columns alone give too few threads. A block takes 32 packs of columns and 256 rows, so
that loads of 16 bytes are coalesced and the whole GPU is busy; shared memory adds its eight warps, atomics add the
blocks."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void strip(const float* x, float* y, int rows, int cols) {
    __shared__ Pack<W> part[8][32];
    int c = blockIdx.x * 32 + threadIdx.x, last = min(rows, (int)blockIdx.y * 256 + 256);
    Pack<W> sum = {};
    if (c < cols / W) {
        #pragma unroll 8
        for (int r = blockIdx.y * 256 + threadIdx.y; r < last; r += 8) {
            Pack<W> p = ((const Pack<W>*)(x + (long long)r * cols))[c];
            for (int k = 0; k < W; k++) sum.v[k] += p.v[k];
        }
    }
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y || c >= cols / W) return;
    for (int k = 0; k < W; k++) {
        float s = 0;
        for (int t = 0; t < 8; t++) s += part[t][threadIdx.x].v[k];
        atomicAdd(y + c * W + k, s);
    }
}

extern "C" __global__ void column_sum(const float* x, float* y, int rows, int cols) {
    if (cols % 4 == 0) strip<4>(x, y, rows, cols);
    else strip<1>(x, y, rows, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = x.new_zeros(cols)
        packs = cols if cols % 4 else cols // 4
        kernels.column_sum(((packs + 31) // 32, (rows + 255) // 256), (32, 8), x, y, rows, cols)
        return y
