"""Bound by multiply-adds. One thread for each output walks through all channels and nine taps, with a test for the
border at each; every product needs a load of a pixel and one of a weight from the cache. Norm, residual and ReLU run
in torch."""

import torch

import warpsmith

SOURCE = r"""
extern "C" __global__ void conv(const float* x, const float* w, float* y, int n, int C, int H, int W) {
    int o = blockIdx.x * 256 + threadIdx.x;
    if (o >= n) return;
    int c = o / W / H % C, h = o / W % H, l = o % W;
    const float* a = x + o / W / H / C * C * H * W;
    float s = 0;
    for (int k = 0; k < C * 9; k++) {
        int i = h + k / 3 % 3 - 1, j = l + k % 3 - 1;
        if (i >= 0 && i < H && j >= 0 && j < W) s += w[c * C * 9 + k] * a[(k / 9 * H + i) * W + j];
    }
    y[o] = s;
}
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, channels, channels, 3, 3) / (3 * channels**0.5))
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def conv(self, x, i):
        y = torch.empty_like(x)
        kernels.conv((y.numel() + 255) // 256, 256, x, self.weight[i], y, y.numel(), *x.shape[1:])
        return y * self.scale[i] + self.shift[i]

    def forward(self, x):
        return torch.relu(self.conv(torch.relu(self.conv(x, 0)), 1) + x)
