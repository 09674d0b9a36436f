"""One read and one write are the bound. A block walks along its row in tiles: each thread sums four values in
registers, warps scan these sums by shuffles, warp totals go through shared memory, and what came before is carried
on, so that nothing is read twice."""

import torch

import warpsmith

SOURCE = r"""
template <int W> struct alignas(4 * W) Pack { float v[W]; };
template <int W> __device__ void row(const float* x, float* y, int cols) {
    __shared__ float totals[2][32];
    long long o = (long long)blockIdx.x * cols;
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32, turn = 0;
    float carry = 0;
    for (int first = 0; first < cols; first += blockDim.x * 4, turn ^= 1) {
        int c = first + threadIdx.x * 4;
        Pack<4> p = {};
        if (W == 4 && c < cols) p = *(const Pack<4>*)(x + o + c);
        if (W == 1)
            for (int k = 0; k < 4; k++) p.v[k] = c + k < cols ? x[o + c + k] : 0;
        for (int k = 1; k < 4; k++) p.v[k] += p.v[k - 1];
        float sum = p.v[3];
        for (int k = 1; k < 32; k *= 2) {
            float left = __shfl_up_sync(~0u, sum, k);
            if (lane >= k) sum += left;
        }
        if (lane == 31) totals[turn][warp] = sum;
        __syncthreads();
        float before = carry + sum - p.v[3];
        for (int k = 0; k < warps; k++) {
            if (k < warp) before += totals[turn][k];
            carry += totals[turn][k];
        }
        for (int k = 0; k < 4; k++) p.v[k] += before;
        if (W == 4 && c < cols) *(Pack<4>*)(y + o + c) = p;
        if (W == 1)
            for (int k = 0; k < 4 && c + k < cols; k++) y[o + c + k] = p.v[k];
    }
}

extern "C" __global__ void cumsum(const float* x, float* y, int cols) {
    if (cols % 4 == 0) row<4>(x, y, cols);
    else row<1>(x, y, cols);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        rows, cols = x.shape
        kernels.cumsum(rows, 256 if cols > 512 else 32, x, y, cols)
        return y
