"""Six passes in eager, one here. The three sums of a row are added up one by one in double, so a chain of dependent
additions is the bound and nothing vectorises."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* a, const float* b, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, a += cols, b += cols) {
        double p = 0, q = 0, s = 0;
        for (long c = 0; c < cols; c++) {
            p += a[c] * a[c];
            q += b[c] * b[c];
            s += a[c] * b[c];
        }
        y[r] = s / fmax(sqrt(p * q), 1e-8);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, b):
        y = a.new_empty(a.shape[0])
        kernel.run(a, b, y, *a.shape)
        return y
