"""A few samples use each weight once, so reading weights is the bound; eager runs two matmuls and a dozen small
kernels. The four gates of a unit are summed together, their rows of weights stay in the L1 cache for all samples, and
the activations follow at once."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
static void gates(const float* x, const float* w, float* s, long n, long K) {
    const float *p = w, *q = p + n * K, *t = q + n * K, *u = t + n * K;
    float a = 0, b = 0, c = 0, d = 0;
    #pragma omp simd reduction(+:a,b,c,d)
    for (long k = 0; k < K; k++) {
        a += x[k] * p[k];
        b += x[k] * q[k];
        c += x[k] * t[k];
        d += x[k] * u[k];
    }
    s[0] += a, s[1] += b, s[2] += c, s[3] += d;
}
static float sigmoid(float x) { return 1 / (1 + expf(-x)); }

extern "C" void lstm(const float* x, const float* h, const float* m, const float* wi, const float* wh, const float* bi,
                     const float* bh, float* y, float* z, long B, long K, long N) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++)
        for (long b = 0; b < B; b++) {
            float s[4];
            for (long g = 0; g < 4; g++) s[g] = bi[g * N + n] + bh[g * N + n];
            gates(x + b * K, wi + n * K, s, N, K);
            gates(h + b * N, wh + n * N, s, N, N);
            long o = b * N + n;
            z[o] = sigmoid(s[1]) * m[o] + sigmoid(s[0]) * tanhf(s[2]);
            y[o] = sigmoid(s[3]) * tanhf(z[o]);
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
        kernel.lstm(x, h, memory, c.weight_ih, c.weight_hh, c.bias_ih, c.bias_hh, y, z, *x.shape, h.shape[1])
        return y, z
