"""Three loops over each row: mean and variance are summed in double precision, one value after the other, so that the
latency of the additions is the bottleneck; the last loop normalises and vectorises."""

import torch

import warpsmith

SOURCE = r"""
#include <math.h>
extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols, y += cols) {
        double mean = 0, square = 0;
        for (long c = 0; c < cols; c++) mean += x[c];
        mean /= cols;
        for (long c = 0; c < cols; c++) square += (x[c] - mean) * (x[c] - mean);
        float k = 1 / sqrt(square / cols + 1e-5);
        for (long c = 0; c < cols; c++) y[c] = (float)(x[c] - mean) * k * w[c] + b[c];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight, bias):
        y = torch.empty_like(x)
        kernel.layer_norm(x, weight, bias, y, *x.shape)
        return y
