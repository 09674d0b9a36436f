"""Two passes over memory in eager, where the norm is well tuned. Row by row here; mean and variance are added up one
by one in double, which does not vectorise."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* s, const float* w, const float* b, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols, s += cols, y += cols) {
        double m = 0, q = 0;
        for (long c = 0; c < cols; c++) m += y[c] = x[c] + s[c];
        m /= cols;
        for (long c = 0; c < cols; c++) q += (y[c] - m) * (y[c] - m);
        double k = 1 / sqrt(q / cols + 1e-5);
        for (long c = 0; c < cols; c++) y[c] = (y[c] - m) * k * w[c] + b[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, residual, weight, bias):
        y = torch.empty_like(x)
        kernel.run(x, residual, weight, bias, y, *x.shape)
        return y
