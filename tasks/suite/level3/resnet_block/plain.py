"""Bound by multiply-adds. One loop over the outputs of a padded image, and inside it one over channels and taps that
adds up in double, one by one, so nothing vectorises; norm, residual and ReLU run in torch."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void conv(const float* x, const float* w, float* y, long n, long C, long H, long W) {
    for (long o = 0; o < n; o++) {
        long c = o / W / H, h = c / C * C * (H + 2) + o / W % H;
        double s = 0;
        for (long k = 0; k < C * 9; k++)
            s += w[c % C * C * 9 + k] * x[(h + k / 9 * (H + 2) + k / 3 % 3) * (W + 2) + o % W + k % 3];
        y[o] = s;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.conv1 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def conv(self, x, layer, i):
        y = torch.empty_like(x)
        x = torch.nn.functional.pad(x, (1, 1, 1, 1))
        kernel.conv(x, layer.weight, y, y.numel(), *y.shape[1:])
        return y * self.scale[i] + self.shift[i]

    def forward(self, x):
        return torch.relu(self.conv(torch.relu(self.conv(x, self.conv1, 0)), self.conv2, 1) + x)
