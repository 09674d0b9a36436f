"""Three passes in eager, one here with a thread for each value. Loads of four bytes, and of one for the mask, leave
part of the bandwidth unused."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void run(const float* x, const bool* keep, const float* r, float* y, long long n) {
    long long i = blockIdx.x * 256LL + threadIdx.x;
    if (i < n) y[i] = r[i] + (keep[i] ? x[i] / 0.9f : 0);
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep, residual):
        y = torch.empty_like(x)
        kernels.run((x.numel() + 255) // 256, 256, x, keep, residual, y, x.numel())
        return y
