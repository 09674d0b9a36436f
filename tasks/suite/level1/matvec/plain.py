"""Reading the matrix could be the bound, but one sum for each row, in double precision and in order, makes each
addition wait for the one before: about four cycles a value."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void matvec(const float* a, const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long c = 0; c < cols; c++) sum += a[r * cols + c] * x[c];
        y[r] = sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, a, x):
        y = x.new_empty(len(a))
        kernel.matvec(a, x, y, *a.shape)
        return y
