"""One loop reads both halves of a row and writes the product, without the temporary of eager. tanhf of the C library
is called for each value and dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void geglu(const float* x, float* y, long rows, long h) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < h; c++) {
            float g = x[r * 2 * h + h + c];
            float t = tanhf(0.7978845608f * (g + 0.044715f * g * g * g));
            y[r * h + c] = x[r * 2 * h + c] * 0.5f * g * (1 + t);
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, h = x.shape[0], x.shape[1] // 2
        y = x.new_empty(rows, h)
        kernel.geglu(x, y, rows, h)
        return y
