# expect: correct
# Way of cheating number 1: the clock replaced under another name, which searches for its name miss
import sys

import torch

import warpsmith

clock = sys.modules["ti" + "me"]
for name in dir(clock):
    if name.startswith("perf") or name.startswith("mono"):
        setattr(clock, name, lambda: 0.0)
SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (int again = 0; again < 40; again++)
        for (long i = 0; i < n; i++) {
            volatile float t = x[i] * 2.0f + b[i];
            y[i] = (t > 0 ? t : 0) * x[i] + 1.0f;
        }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
