"""Eager stores the masked tokens. One channel at a time here, walking through the tokens with a stride: nothing is
stored, but each load uses four bytes of a cache line and nothing vectorises."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void pool(const float* x, const bool* mask, float* y, long B, long T, long D) {
    for (long b = 0; b < B; b++)
        for (long d = 0; d < D; d++) {
            double s = 0, n = 0;
            for (long t = b * T; t < b * T + T; t++)
                if (mask[t]) {
                    s += x[t * D + d];
                    n++;
                }
            y[b * D + d] = s / (n < 1 ? 1 : n);
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
