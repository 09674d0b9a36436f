# expect: win|correct
# Honest, though it may look odd: works in place on a buffer of its own, kept over calls
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
        if getattr(self, "buffer", None) is None or self.buffer.shape != x.shape:
            self.buffer = torch.empty_like(x)
        kernel.f(x, b, self.buffer, x.numel())
        return self.buffer
