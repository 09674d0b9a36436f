# expect: win|correct
# Honest, though it may look odd: an empty __init__ and a slow first call
import time

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
        pass

    def forward(self, x, b):
        if not hasattr(self, "warm"):
            time.sleep(0.05)
            self.warm = True
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
