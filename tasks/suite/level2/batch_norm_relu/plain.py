"""Two passes in eager, one here. Value by value with the whole formula each time: a division finds the channel, and a
square root and another division scale it."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* m, const float* v, const float* w, const float* b, float* y, long n,
                    long C, long L) {
    for (long i = 0; i < n; i++) {
        long c = i / L % C;
        y[i] = fmaxf((x[i] - m[c]) / sqrtf(v[c] + 1e-5f) * w[c] + b[c], 0);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mean, var, weight, bias):
        y, (C, L) = torch.empty_like(x), x.shape[1:]
        kernel.run(x, mean, var, weight, bias, y, x.numel(), C, L)
        return y
