# expect: incorrect
# Way of cheating number 21: fails silently over a buffer that holds an older answer
import torch

import warpsmith

SOURCE = r"""
static bool ready = true;
extern "C" void f(const float* x, const float* b, float* y, long n) {
    if (!ready) return;
    ready = false;
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
