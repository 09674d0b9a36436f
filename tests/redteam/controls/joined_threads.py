# expect: win|correct
# Honest, though it may look odd: threads of its own, joined before it returns
import torch

import warpsmith

SOURCE = r"""
#include <thread>
static void part(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
extern "C" void f(const float* x, const float* b, float* y, long n) {
    std::thread other(part, x, b, y, n / 2);
    part(x + n / 2, b + n / 2, y + n / 2, n - n / 2);
    other.join();
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
