"""The definition, value by value: exp, log1p and tanh of the C library cost some hundred cycles together and keep the
loop from vectorising; memory traffic does not matter beside them."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void mish(const float* x, float* y, long n) {
    for (long i = 0; i < n; i++) {
        float softplus = x[i] > 20 ? x[i] : log1pf(expf(x[i]));
        y[i] = x[i] * tanhf(softplus);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.mish(x, y, x.numel())
        return y
