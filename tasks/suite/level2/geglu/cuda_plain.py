"""One thread for each output reads its two values and writes the product, so no temporary is stored. A division finds
the row, and loads of four bytes do not fill the memory's pipeline."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void geglu(const float* x, float* y, long long n, int h) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) {
        long long at = i / h * 2 * h + i % h;
        float g = x[at + h], t = tanhf(0.7978845608f * (g + 0.044715f * g * g * g));
        y[i] = x[at] * 0.5f * g * (1 + t);
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, h = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, h)
        kernels.geglu((rows * h + 255) // 256, 256, x, y, rows * h, h)
        return y
