"""Eager stores the masked tokens and reads them again. Here a token that the mask drops is not read at all; the
others are added to the output row, which stays in the L1 cache, by a loop over channels that vectorises."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void pool(const float* x, const bool* mask, float* y, long B, long T, long D) {
    #pragma omp parallel for
    for (long b = 0; b < B; b++) {
        float *o = y + b * D, n = 0;
        for (long d = 0; d < D; d++) o[d] = 0;
        for (long t = b * T; t < b * T + T; t++) {
            if (!mask[t]) continue;
            n++;
            #pragma omp simd
            for (long d = 0; d < D; d++) o[d] += x[t * D + d];
        }
        n = n < 1 ? 1 : n;
        for (long d = 0; d < D; d++) o[d] /= n;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        B, T, D = x.shape
        y = x.new_empty(B, D)
        kernel.pool(x, mask, y, B, T, D)
        return y
