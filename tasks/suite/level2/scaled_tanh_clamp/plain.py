"""Five passes in eager, one here, value by value. tanhf of the C library is called for each value and dominates; a
division finds the column."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const float* s, float* y, long rows, long cols) {
    for (long i = 0; i < rows * cols; i++) {
        float t = 3 * tanhf((x[i] + s[i % cols]) * 0.4f);
        y[i] = fminf(fmaxf(t, -2.5f), 2.75f);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, shift):
        y = torch.empty_like(x)
        kernel.run(x, shift, y, *x.shape)
        return y
