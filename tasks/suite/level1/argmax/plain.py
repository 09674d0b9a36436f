"""One loop over each row that compares every value with the best so far and keeps its place. The comparison depends
on the one before, so it runs at a few cycles a value; strictly greater keeps the first of equal values."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void argmax(const float* x, long* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        const float* a = x + r * cols;
        long best = 0;
        for (long c = 1; c < cols; c++)
            if (a[c] > a[best]) best = c;
        y[r] = best;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty(x.shape[0], dtype=torch.int64)
        kernel.argmax(x, y, *x.shape)
        return y
