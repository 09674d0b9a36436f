"""The two halves of a row are contiguous, so one loop can read both and write the product without a temporary. expf
of the C library is called for each value and dominates."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void swiglu(const float* x, float* y, long rows, long h) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < h; c++) {
            float g = x[r * 2 * h + c];
            y[r * h + c] = g / (1 + expf(-g)) * x[r * 2 * h + h + c];
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        rows, h = x.shape[0], x.shape[1] // 2
        y = torch.empty(rows, h)
        kernel.swiglu(x, y, rows, h)
        return y
