"""One running sum for each row, in double precision: every addition waits for the one before, about four cycles a
value, while loads and stores are nearly free."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void cumsum(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        double sum = 0;
        for (long c = 0; c < cols; c++) {
            sum += x[r * cols + c];
            y[r * cols + c] = sum;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.cumsum(x, y, *x.shape)
        return y
