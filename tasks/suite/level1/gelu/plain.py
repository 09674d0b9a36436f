"""The cost is the error function. This kernel calls erff of the C library for one value after the other, which is
exact but not vectorised."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void gelu(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++)
        y[i] = 0.5f * x[i] * (1 + erff(x[i] * 0.70710678f));
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.gelu(x, y, x.numel())
        return y
