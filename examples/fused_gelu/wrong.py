"""GELU by its tanh approximation: off by up to 5e-4, which a tolerance of 1e-2 would let pass. The judge does not."""

import torch

import warpsmith

SOURCE = r"""
#include <cmath>
extern "C" void fused(const float* x, const float* bias, const float* res, float* y, long rows, long cols, float s) {
    for (long r = 0; r < rows; r++)
        for (long c = 0; c < cols; c++) {
            float v = x[r * cols + c] + bias[c];
            float g = 0.5f * v * (1.0f + std::tanh(0.7978845608f * (v + 0.044715f * v * v * v)));
            y[r * cols + c] = g * s + res[r * cols + c];
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
