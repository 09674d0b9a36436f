"""Five taps for each value, each checked against both ends of the row. The checks and the short inner loop cost more
than the multiplications and keep the loop over the row from vectorising."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void conv(const float* x, const float* w, float* y, long rows, long C, long T) {
    for (long r = 0; r < rows; r++)
        for (long t = 0; t < T; t++) {
            float sum = 0;
            for (long k = 0; k < 5; k++) {
                long s = t + k - 2;
                if (s >= 0 && s < T) sum += w[r % C * 5 + k] * x[r * T + s];
            }
            y[r * T + t] = sum;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, weight):
        y = torch.empty_like(x)
        N, C, T = x.shape
        kernel.conv(x, weight, y, N * C, C, T)
        return y
