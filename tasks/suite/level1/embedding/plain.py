"""For each token a loop copies the table's row. It vectorises, but each row lies in a random place, and the latency of
its first cache lines is waited for every time."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void embedding(const long* index, const float* table, float* y, long n, long dim) {
    for (long i = 0; i < n; i++)
        for (long c = 0; c < dim; c++) y[i * dim + c] = table[index[i] * dim + c];
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, tokens, table):
        y = table.new_empty(*tokens.shape, table.shape[1])
        kernel.embedding(tokens, table, y, tokens.numel(), table.shape[1])
        return y
