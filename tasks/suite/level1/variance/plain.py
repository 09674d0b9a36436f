"""Two loops over each row, mean and squared distances, in double precision and in order: each addition waits for the
one before, which costs about four cycles a value, while memory would allow far more."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void variance(const float* x, float* y, long rows, long cols) {
    for (long r = 0; r < rows; r++, x += cols) {
        double mean = 0, square = 0;
        for (long c = 0; c < cols; c++) mean += x[c];
        mean /= cols;
        for (long c = 0; c < cols; c++) square += (x[c] - mean) * (x[c] - mean);
        y[r] = square / (cols - 1);
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = x.new_empty(x.shape[0])
        kernel.variance(x, y, *x.shape)
        return y
