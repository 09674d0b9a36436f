"""Reading weights is the bound. Sample by sample and unit by unit, six dot products in double are added up one by
one; the weights come from the cache again for every sample."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void gru(const float* x, const float* h, const float* wi, const float* wh, const float* bi, const float* bh,
                    float* y, long B, long K, long N) {
    for (long o = 0; o < B * N; o++) {
        double s[3], u[3];
        for (long j = 0; j < 3; j++) {
            long r = j * N + o % N;
            s[j] = bi[r];
            u[j] = bh[r];
            for (long k = 0; k < K; k++) s[j] += x[o / N * K + k] * wi[r * K + k];
            for (long k = 0; k < N; k++) u[j] += h[o / N * N + k] * wh[r * N + k];
        }
        double t = tanh(s[2] + u[2] / (1 + exp(-s[0] - u[0])));
        y[o] = t + (h[o] - t) / (1 + exp(-s[1] - u[1]));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.cell = torch.nn.GRUCell(inputs, units)

    def forward(self, x, h):
        c, y = self.cell, torch.empty_like(h)
        kernel.gru(x, h, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh, y, *x.shape, h.shape[1])
        return y
