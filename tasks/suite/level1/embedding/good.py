"""Copying rows from random places is bound by memory latency, then by bandwidth. The indices are known ahead, so the
row that is needed eight tokens later is prefetched while this one is copied."""

import torch

import warpsmith

SOURCE = r"""
#include <string.h>
extern "C" void embedding(const long* index, const float* table, float* y, long n, long dim) {
    #pragma omp parallel for
    for (long i = 0; i < n; i++) {
        if (i + 8 < n) {
            const float* next = table + index[i + 8] * dim;
            for (long c = 0; c < dim; c += 16) __builtin_prefetch(next + c);
        }
        memcpy(y + i * dim, table + index[i] * dim, dim * sizeof(float));
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, tokens, table):
        y = table.new_empty(*tokens.shape, table.shape[1])
        kernel.embedding(tokens, table, y, tokens.numel(), table.shape[1])
        return y
