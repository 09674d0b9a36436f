"""For each pixel of the output a loop over its window, clipped at the border. The short loops with changing bounds
cost more than the nine loads themselves, and nothing vectorises."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void max_pool(const float* x, float* y, long n, long H, long P) {
    for (long o = 0; o < n * P * P; o++) {
        long p = o / (P * P), i = o / P % P * 2, j = o % P * 2;
        float m = -INFINITY;
        for (long k = i ? i - 1 : 0; k <= i + 1 && k < H; k++)
            for (long l = j ? j - 1 : 0; l <= j + 1 && l < H; l++) m = fmaxf(m, x[(p * H + k) * H + l]);
        y[o] = m;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, _ = x.shape
        P = (H + 1) // 2
        y = x.new_empty(N, C, P, P)
        kernel.max_pool(x, y, N * C, H, P)
        return y
