# expect: win|correct
# Honest, though it may look odd: returns a view that is not contiguous
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty(x.numel(), 2)[:, 0]
        flat = torch.empty_like(x)
        kernel.f(x, b, flat, x.numel())
        y.copy_(flat)
        return y
