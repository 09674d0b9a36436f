"""A dozen passes over memory in eager. Row by row here, with mean, variance and the gradient's two sums added up one
by one in double; only the last loop vectorises."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* d, const float* x, const float* w, float* y, long n, long cols) {
    for (; n--; x += cols, d += cols, y += cols) {
        double m = 0, q = 1e-5 * cols, s = 0, p = 0;
        for (long c = 0; c < cols; c++) m += x[c] / cols;
        for (long c = 0; c < cols; c++) {
            double u = x[c] - m, g = y[c] = d[c] * w[c];
            q += u * u, s += g, p += g * u;
        }
        for (long c = 0; c < cols; c++) y[c] = (y[c] - s / cols - (x[c] - m) * p / q) / sqrt(q / cols);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, dy, x, weight):
        y = torch.empty_like(x)
        kernel.run(dy, x, weight, y, *x.shape)
        return y
