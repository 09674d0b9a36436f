"""A copy of each row is sorted by the standard library. It compares n log n times, and the processor guesses about
half of the branches wrong; eager also carries the places along, which is not asked for."""

import torch

import warpsmith

SOURCE = r"""
#include <algorithm>
extern "C" void sort_rows(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        std::copy(x + r * cols, x + r * cols + cols, y + r * cols);
        std::sort(y + r * cols, y + r * cols + cols);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.sort_rows(x, y, *x.shape)
        return y
