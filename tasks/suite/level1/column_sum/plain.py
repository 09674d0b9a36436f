"""One column after the other: consecutive reads are a whole row apart, so each of them touches another cache line and
most of what memory delivers is thrown away. Sums in double precision."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void column_sum(const float* x, float* y, long rows, long cols) {
    for (long c = 0; c < cols; c++) {
        double sum = 0;
        for (long r = 0; r < rows; r++) sum += x[r * cols + c];
        y[c] = sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[1])
        kernel.column_sum(x, y, *x.shape)
        return y
