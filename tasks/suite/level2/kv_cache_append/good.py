"""Eager selects twice over the full size, besides a tensor of zeros. The result is three plain runs for each
sequence: rows kept, the new row, zeros; memcpy and memset move them at the memory's speed, and cleared rows are never
read."""

import torch

import warpsmith

SOURCE = r"""
#include <string.h>
extern "C" void append(const float* cache, const float* row, const long* lengths, float* y, long B, long S, long D) {
    #pragma omp parallel for
    for (long b = 0; b < B; b++) {
        float* o = y + b * S * D;
        long n = lengths[b];
        memcpy(o, cache + b * S * D, n * D * sizeof(float));
        memcpy(o + n * D, row + b * D, D * sizeof(float));
        memset(o + (n + 1) * D, 0, (S - n - 1) * D * sizeof(float));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, cache, new, lengths):
        y, (S, D) = torch.empty_like(cache), cache.shape[1:]
        kernel.append(cache, new, lengths, y, len(y), S, D)
        return y
