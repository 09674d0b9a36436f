"""Bound by multiply-adds. One loop over the outputs of a padded image, and inside it one over channels and taps that
adds up one by one, so nothing vectorises; norm, residual and ReLU run in torch."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void conv(const float* x, const float* w, float* y, long n, long C, long H, long W) {
    for (long o = 0; o < n; o++) {
        long c = o / W / H, h = c / C * C * (H + 2) + o / W % H;
        y[o] = 0;
        for (long k = 0; k < C * 9; k++)
            y[o] += w[c % C * C * 9 + k] * x[(h + k / 9 * (H + 2) + k / 3 % 3) * (W + 2) + o % W + k % 3];
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, channels, channels, 3, 3) / (3 * channels**0.5))
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def conv(self, x, i):
        y = torch.empty_like(x)
        x = torch.nn.functional.pad(x, (1,) * 4)
        kernel.conv(x, self.weight[i], y, y.numel(), *y.shape[1:])
        return y * self.scale[i] + self.shift[i]

    def forward(self, x):
        return torch.relu(self.conv(torch.relu(self.conv(x, 0)), 1) + x)
