"""Eager runs three kernels and stores two temporaries. Fused, each value is read once; the mask is read as bytes,
whose 0 and 1 become numbers in vector registers, since loops over bool do not vectorise."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void run(const float* x, const bool* keep, const float* r, float* y, long n) {
    const unsigned char* k = (const unsigned char*)keep;
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = r[i] + x[i] * (float)k[i] * (1 / .9f);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, keep, residual):
        y = torch.empty_like(x)
        kernel.run(x, keep, residual, y, x.numel())
        return y
