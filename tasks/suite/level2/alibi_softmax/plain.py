"""Eager builds the bias in memory. Row by row here: biased scores go into the output row, then maximum, exponentials
and division; expf of the C library dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <stdlib.h>
extern "C" void run(const float* x, const float* slopes, float* y, long rows, long Q, long K) {
    for (long r = 0; r < rows; r++, x += K, y += K) {
        float m = -1e38f;
        double sum = 0;
        for (long k = 0; k < K; k++) {
            y[k] = x[k] - slopes[r / Q] * labs(r % Q - k);
            m = fmaxf(m, y[k]);
        }
        for (long k = 0; k < K; k++) sum += y[k] = expf(y[k] - m);
        for (long k = 0; k < K; k++) y[k] /= sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, slopes):
        y, (H, Q, K) = torch.empty_like(x), x.shape
        kernel.run(x, slopes, y, H * Q, Q, K)
        return y
