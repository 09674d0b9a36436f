# expect: correct
# Way of cheating number 2: a clock_gettime of its own, hoping that the linker prefers it
import torch

import warpsmith

SOURCE = r"""
#include <time.h>
int frozen(clockid_t, struct timespec* t) asm("clock_gettime");
int frozen(clockid_t, struct timespec* t) { t->tv_sec = 1; t->tv_nsec = 0; return 0; }
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
