# expect: win|correct
# Honest, though it may look odd: builds in __init__
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""


class ModelNew(torch.nn.Module):
    """Uses time.perf_counter nowhere; exec and eval are words of this docstring only."""

    def __init__(self):
        super().__init__()
        self.kernel = warpsmith.load_cpp(SOURCE)

    def forward(self, x, b):
        y = torch.empty_like(x)
        self.kernel.f(x, b, y, x.numel())
        return y
