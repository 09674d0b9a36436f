# expect: incorrect
# Way of cheating number 14: does its work only where no clock seems to run
import sys

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
        frame, timed = sys._getframe(), False
        while frame:
            timed = timed or "began" in frame.f_locals or "nonce" in str(frame.f_locals.keys())
            frame = frame.f_back
        y = torch.zeros_like(x)
        if not timed:
            kernel.f(x, b, y, x.numel())
        return y
