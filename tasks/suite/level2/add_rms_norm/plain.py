"""Memory-bound in eager, which makes seven passes. Two loops for each row: the sum of squares, added up one by one in
double, and the scaled output."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* r, const float* w, float* y, long rows, long cols) {
    for (long i = 0; i < rows; i++) {
        double sum = 0;
        for (long c = 0; c < cols; c++) {
            float h = x[i * cols + c] + r[i * cols + c];
            sum += h * h;
        }
        float k = 1 / sqrtf(sum / cols + 1e-6f);
        for (long c = 0; c < cols; c++)
            y[i * cols + c] = (x[i * cols + c] + r[i * cols + c]) * k * w[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight):
        y = torch.empty_like(x)
        kernel.run(x, residual, weight, y, x.shape[0], x.shape[1])
        return y
