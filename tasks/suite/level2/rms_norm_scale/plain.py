"""Memory-bound in eager, with four passes of the full size. Here two loops for each row; the sum of squares is added
up one by one in double, which does not vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* w, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long c = 0; c < cols; c++) sum += x[r * cols + c] * x[r * cols + c];
        float k = 1 / sqrtf(sum / cols + 1e-6f);
        for (long c = 0; c < cols; c++) y[r * cols + c] = x[r * cols + c] * k * (1 + w[c]);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        kernel.run(x, weight, y, *x.shape)
        return y
