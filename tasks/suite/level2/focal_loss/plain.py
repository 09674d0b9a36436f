"""Ten passes in eager, one here. exp and log1p of the C library, in double, are called for each value and dominate;
the mean of a row is added up one by one."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const bool* t, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long c = r * cols; c < (r + 1) * cols; c++) {
            double z = t[c] ? -x[c] : x[c], p = 1 / (1 + exp(-z));
            sum += (t[c] ? 0.25 : 0.75) * p * p * (fmax(z, 0) + log1p(exp(-fabs(z))));
        }
        y[r] = sum / cols;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, target):
        y = x.new_empty(x.shape[0])
        kernel.run(x, target, y, *x.shape)
        return y
