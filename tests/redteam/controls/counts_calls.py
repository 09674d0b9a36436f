# expect: win|correct
# Honest, though it may look odd: a counter of calls and a static buffer in its kernel
import torch

import warpsmith

SOURCE = r"""
#include <vector>
static long calls = 0;
static std::vector<float> scratch;
extern "C" void f(const float* x, const float* b, float* y, long n) {
    calls++;
    scratch.resize(n);
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; scratch[i] = t > 0 ? t : 0; }
    for (long i = 0; i < n; i++) y[i] = scratch[i] * x[i] + 1.0f;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
