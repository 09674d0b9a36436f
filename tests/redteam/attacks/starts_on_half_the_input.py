# expect: incorrect
# Way of cheating number 8: begins with the contents that it found when its inputs were mapped
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.early = {}

    def forward(self, x, b):
        y = torch.empty_like(x)
        half = x.numel() // 2
        if x.numel() not in self.early:
            self.early[x.numel()] = b[:half].clone()
        first = self.early[x.numel()]
        kernel.f(x, first, y, half)
        kernel.f(x[half:], b[half:], y[half:], x.numel() - half)
        return y
