"""Bound by multiply-adds, where a tuned library is hard to beat. Row by row here, the weights' rows are added to the
output row, which vectorises but loads and stores the output for every product; then erff is called for each value."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* w, const float* b, float* y, long M, long K, long N) {
    for (long m = 0; m < M; m++, x += K, y += N) {
        for (long n = 0; n < N; n++) y[n] = b[n];
        for (long k = 0; k < K; k++)
            for (long n = 0; n < N; n++) y[n] += x[k] * w[k * N + n];
        for (long n = 0; n < N; n++) y[n] *= 0.5f * (1 + erff(y[n] * 0.70710678f));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        (M, K), N = x.shape, weight.shape[1]
        y = x.new_empty(M, N)
        kernel.run(x, weight, bias, y, M, K, N)
        return y
