"""One pixel of the output after the other, each from four loads. Finding the place in the input takes divisions,
which cost more than the additions and keep the loop from vectorising."""

import torch

import warpsmith

SOURCE = r"""
extern "C" void avg_pool(const float* x, float* y, long n, long H, long P) {
    for (long o = 0; o < n; o++) {
        const float* a = x + (o / (P * P) * H + o / P % P * 2) * H + o % P * 2;
        y[o] = (a[0] + a[1] + a[H] + a[H + 1]) / 4;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x):
        N, C, H, _ = x.shape
        y = x.new_empty(N, C, H // 2, H // 2)
        kernel.avg_pool(x, y, y.numel(), H, H // 2)
        return y
