"""Three passes in eager, one here: a thread for each value applies bias, gelu and residual. Every thread pays a
division for its column, and loads of four bytes do not fill the memory's pipeline."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const float* b, const float* r, float* y, long long n, int cols) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) {
        float t = x[i] + b[i % cols];
        y[i] = 0.5f * t * (1 + erff(t * 0.70710678f)) + r[i];
    }
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernels.run((x.numel() + 255) // 256, 256, x, bias, residual, y, x.numel(), x.shape[1])
        return y
