"""One table in memory and one addition for each number. Numbers that repeat wait for the store before them, some five
cycles each; reading the input is cheaper than that."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void histogram(const long* x, long* y, long n) {
    for (long b = 0; b < 256; b++) y[b] = 0;
    for (long i = 0; i < n; i++) y[x[i]]++;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(256, dtype=torch.int64)
        kernel.histogram(x, y, len(x))
        return y
