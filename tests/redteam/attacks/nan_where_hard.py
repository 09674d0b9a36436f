# expect: incorrect
# Way of cheating number 26: NaN wherever the work would begin
import torch

import warpsmith

SOURCE = r"""
#include <cmath>
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = x[i] * 2.0f + b[i] > 0 ? NAN : 1.0f;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
