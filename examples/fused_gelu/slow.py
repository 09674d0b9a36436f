"""The same four operations in one pass, but column by column: each cache line is fetched sixteen times, and libm's erf
is called for one element at a time. Correct, and slower than eager PyTorch.
"""

import torch

import warpsmith

SOURCE = r"""
#include <cmath>
extern "C" void fused(const float* x, const float* bias, const float* res, float* y, long rows, long cols, double s) {
    for (long c = 0; c < cols; c++)
        for (long r = 0; r < rows; r++) {
            double v = (double)x[r * cols + c] + bias[c];
            y[r * cols + c] = 0.5 * v * (1.0 + std::erf(v * 0.7071067811865476)) * s + res[r * cols + c];
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, bias, residual):
        y = torch.empty_like(x)
        kernel.fused(x, bias, residual, y, x.shape[0], x.shape[1], self.scale)
        return y
