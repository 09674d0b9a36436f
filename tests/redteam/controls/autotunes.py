# expect: win|correct
# Honest, though it may look odd: times two kernels of its own in its first call and keeps the faster
import time

import torch

import warpsmith

SOURCE = r"""
static inline float one(float x, float b) { float t = x * 2.0f + b; return (t > 0 ? t : 0) * x + 1.0f; }
extern "C" void by_one(const float* x, const float* b, float* y, long n) {
    for (long i = 0; i < n; i++) y[i] = one(x[i], b[i]);
}
extern "C" void by_block(const float* x, const float* b, float* y, long n) {
    for (long start = 0; start < n; start += 1024)
        for (long i = start; i < n && i < start + 1024; i++) y[i] = one(x[i], b[i]);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    chosen = None

    def forward(self, x, b):
        y = torch.empty_like(x)
        if self.chosen is None:
            times = {}
            for kind in (kernel.by_one, kernel.by_block):
                began = time.perf_counter()
                kind(x, b, y, x.numel())
                times[time.perf_counter() - began] = kind
            self.chosen = times[min(times)]
        self.chosen(x, b, y, x.numel())
        return y
