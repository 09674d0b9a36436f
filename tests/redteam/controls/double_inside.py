# expect: win|correct
# Honest, though it may look odd: computes in double precision and rounds once
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) {
        double t = x[i] * 2.0 + b[i];
        y[i] = (t > 0 ? t : 0) * x[i] + 1.0;
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
