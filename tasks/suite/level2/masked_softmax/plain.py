"""Four passes in eager. One row at a time here; masked values are skipped, so that only the others pay for expf of
the C library."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void run(const float* x, const bool* mask, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++) {
        long o = r * cols;
        float m = -1e38f;
        double sum = 0;
        for (long c = o; c < o + cols; c++)
            if (mask[c] && x[c] > m) m = x[c];
        for (long c = o; c < o + cols; c++) {
            y[c] = mask[c] ? expf((x[c] - m) * 0.125f) : 0;
            sum += y[c];
        }
        for (long c = o; c < o + cols; c++) y[c] /= sum;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, mask):
        y = torch.empty_like(x)
        kernel.run(x, mask, y, x.shape[0], x.shape[1])
        return y
