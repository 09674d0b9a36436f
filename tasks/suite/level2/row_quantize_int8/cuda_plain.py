"""Six passes in eager. One warp for each row here: the largest absolute value by shuffles, then division and rounding
to even, exactly as torch does them. Stores of single bytes use the memory badly."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, signed char* q, float* scale, int cols) {
    long long o = (long long)blockIdx.x * cols;
    float m = 0;
    for (int c = threadIdx.x; c < cols; c += 32) m = fmaxf(m, fabsf(x[o + c]));
    for (int k = 16; k; k /= 2) m = fmaxf(m, __shfl_xor_sync(~0u, m, k));
    m = fmaxf(m * (float)(1. / 127), 1e-8f);
    if (threadIdx.x == 0) scale[blockIdx.x] = m;
    for (int c = threadIdx.x; c < cols; c += 32) q[o + c] = (int)rintf(x[o + c] / m);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, cols = x.shape
        q, scale = torch.empty_like(x, dtype=torch.int8), x.new_empty(rows, 1)
        kernels.run(rows, 32, x, q, scale, cols)
        return q, scale
