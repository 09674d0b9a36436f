"""Reading weights is the bound. Sample by sample and unit by unit, each gate is a dot product over inputs and outputs
in double, added up one by one; the weights come from the cache again for every sample."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void lstm(const float* x, const float* h, const float* m, const float* wi, const float* wh,
                     const float* bias, float* y, float* z, long B, long K, long N) {
    for (long o = 0; o < B * N; o++) {
        double g[4];
        for (long j = 0; j < 4; j++) {
            long r = j * N + o % N;
            g[j] = bias[r];
            for (long k = 0; k < K; k++) g[j] += x[o / N * K + k] * wi[r * K + k];
            for (long k = 0; k < N; k++) g[j] += h[o / N * N + k] * wh[r * N + k];
        }
        z[o] = m[o] / (1 + exp(-g[1])) + tanh(g[2]) / (1 + exp(-g[0]));
        y[o] = tanh(z[o]) / (1 + exp(-g[3]));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, inputs, units):
        super().__init__()
        self.cell = torch.nn.LSTMCell(inputs, units)

    def forward(self, x, h, memory):
        c, y, z = self.cell, torch.empty_like(h), torch.empty_like(h)
        bias = c.bias_ih + c.bias_hh
        kernel.lstm(x, h, memory, c.weight_ih, c.weight_hh, bias, y, z, *x.shape, h.shape[1])
        return y, z
