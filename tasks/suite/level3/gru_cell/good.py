"""A few samples use each weight once, so reading weights is the bound; eager runs two matmuls and many small kernels.
The three gates of a unit are summed together, separately for inputs and state, while their rows of weights stay in
the L1 cache for all samples."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
static void gates(const float* x, const float* w, const float* bias, float* s, long n, long K) {
    const float *p = w, *q = p + n * K, *t = q + n * K;
    float a = bias[0], b = bias[n], c = bias[2 * n];
    #pragma omp simd reduction(+:a,b,c)
    for (long k = 0; k < K; k++) {
        a += x[k] * p[k];
        b += x[k] * q[k];
        c += x[k] * t[k];
    }
    s[0] = a, s[1] = b, s[2] = c;
}

extern "C" void gru(const float* x, const float* h, const float* wi, const float* wh, const float* bi, const float* bh,
                    float* y, long B, long K, long N) {
    #pragma omp parallel for
    for (long n = 0; n < N; n++)
        for (long b = 0; b < B; b++) {
            float s[3], u[3];
            gates(x + b * K, wi + n * K, bi + n, s, N, K);
            gates(h + b * N, wh + n * N, bh + n, u, N, N);
            float r = 1 / (1 + expf(-s[0] - u[0])), z = 1 / (1 + expf(-s[1] - u[1])), t = tanhf(s[2] + r * u[2]);
            y[b * N + n] = t + z * (h[b * N + n] - t);
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
