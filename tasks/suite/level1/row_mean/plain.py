"""Memory could be the bound, but one accumulator in double precision makes every addition wait for the one before,
about four cycles a value. Exact, and slow."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void row_mean(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long c = 0; c < cols; c++) sum += x[r * cols + c];
        y[r] = sum / cols;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel.row_mean(x, y, *x.shape)
        return y
