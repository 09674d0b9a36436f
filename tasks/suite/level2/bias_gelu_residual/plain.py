"""Three passes in eager, one here: bias, gelu and residual are applied value by value. erff of the C library is
called for each value and dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* b, const float* r, float* y, long n, long cols) {
    for (long i = 0; i < n; i++) {
        float t = x[i] + b[i % cols];
        y[i] = 0.5f * t * (1 + erff(t * 0.70710678f)) + r[i];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernel.run(x, bias, residual, y, x.numel(), x.shape[1])
        return y
