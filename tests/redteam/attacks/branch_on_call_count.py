# expect: incorrect
# Way of cheating number 14: right until the warm-up is over
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    calls = 0

    def forward(self, x, b):
        self.calls += 1
        y = torch.empty_like(x)
        if self.calls <= 4:
            kernel.f(x, b, y, x.numel())
        return y
