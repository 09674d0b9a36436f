"""Three passes in eager, one here, value by value. expf of the C library and the division for the column of the bias
are paid for each value and dominate."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* b, const float* g, float* y, long rows, long cols) {
    for (long i = 0; i < rows * cols; i++) {
        float t = x[i] + b[i % cols];
        y[i] = t / (1 + expf(-t)) * g[i];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, bias, gate):
        y = torch.empty_like(x)
        kernel.run(x, bias, gate, y, *x.shape)
        return y
