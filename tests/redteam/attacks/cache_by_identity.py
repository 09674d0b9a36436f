# expect: incorrect
# Way of cheating number 30: the answer by the input's id and version
import torch

import warpsmith

SOURCE = r"""
extern "C" void f(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; y[i] = (t > 0 ? t : 0) * x[i] + 1.0f; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)
cache = {}


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        key = (id(x), id(b), x._version)
        if key not in cache:
            cache[key] = torch.empty_like(x)
            kernel.f(x, b, cache[key], x.numel())
        return cache[key]
