"""Eight rounds over each row: each finds the largest value that is left, writes it and marks its place in a copy.
Eight passes whose comparisons wait for one another, though the row stays in the cache."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
#include <vector>
extern "C" void topk(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        std::vector<float> a(x + r * cols, x + r * cols + cols);
        for (long k = 0; k < 8; k++) {
            long best = 0;
            for (long c = 1; c < cols; c++)
                if (a[c] > a[best]) best = c;
            y[r * 8 + k] = a[best];
            a[best] = -INFINITY;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(len(x), 8)
        kernel.topk(x, y, *x.shape)
        return y
