"""Reading the input once is the bound, if eight rounds stay cheap. The row lies in shared memory and each thread knows
the best of its own values. A round finds the best thread by shuffles and one barrier; only that thread strikes out its
value and looks through its few others again."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
__device__ void merge(float& m, int& who, float n, int other) {
    if (n > m || (n == m && other < who)) m = n, who = other;
}
template <int W> __device__ void pick(const float* x, float* y, int cols) {
    extern __shared__ float4 memory[];
    __shared__ float tops[2][32];
    __shared__ int owners[2][32];
    Pack<W>* row = (Pack<W>*)memory;
    int warp = threadIdx.x / 32, at = -1;
    float mine = -INFINITY;
    for (int c = threadIdx.x; c < cols / W; c += blockDim.x) {
        Pack<W> p = row[c] = ((const Pack<W>*)(x + (long long)blockIdx.x * cols))[c];
        for (int k = 0; k < W; k++)
            if (p.v[k] > mine) mine = p.v[k], at = c * W + k;
    }
    for (int round = 0; round < 8; round++) {
        float m = mine;
        int who = threadIdx.x, turn = round % 2;
        for (int k = 16; k; k /= 2) merge(m, who, __shfl_xor_sync(~0u, m, k), __shfl_xor_sync(~0u, who, k));
        if (threadIdx.x % 32 == 0) tops[turn][warp] = m, owners[turn][warp] = who;
        __syncthreads();
        m = tops[turn][0], who = owners[turn][0];
        for (int k = 1; k < blockDim.x / 32; k++) merge(m, who, tops[turn][k], owners[turn][k]);
        if (who != threadIdx.x) continue;
        y[blockIdx.x * 8LL + round] = m;
        if (at >= 0) ((float*)row)[at] = -INFINITY;
        mine = -INFINITY, at = -1;
        for (int c = threadIdx.x; c < cols / W; c += blockDim.x)
            for (int k = 0; k < W; k++)
                if (row[c].v[k] > mine) mine = row[c].v[k], at = c * W + k;
    }
}

extern "C" __global__ void topk(const float* x, float* y, int cols) {
    if (cols % 4 == 0) pick<4>(x, y, cols);
    else pick<1>(x, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        y = x.new_empty(rows, 8)
        kernels.topk(rows, 256 if cols > 512 else 32, x, y, cols, shared=4 * cols)
        return y
