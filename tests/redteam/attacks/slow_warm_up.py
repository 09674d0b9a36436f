# expect: correct
# Way of cheating number 13: sleeps in its first calls, so that few are timed
import time

import torch

import warpsmith

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
    calls = 0

    def forward(self, x, b):
        self.calls += 1
        if self.calls <= 2:
            time.sleep(0.1)
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
