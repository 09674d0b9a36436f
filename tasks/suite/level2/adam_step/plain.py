"""Fourteen passes in eager, one here, value by value in the order of the formula. Divisions and the square root are
done in double, which halves the width of vectors."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void adam(const float* p, const float* g, const float* m, const float* v, float* q, float* n, float* w,
                     long size) {
    for (long i = 0; i < size; i++) {
        n[i] = 0.9f * m[i] + 0.1f * g[i];
        w[i] = 0.999f * v[i] + 0.001f * g[i] * g[i];
        q[i] = p[i] - 0.153534 * n[i] / (sqrt(w[i] * 100.450825) + 1e-8);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, p, g, m, v):
        q, n, w = torch.empty_like(p), torch.empty_like(p), torch.empty_like(p)
        kernel.adam(p, g, m, v, q, n, w, p.numel())
        return q, n, w
