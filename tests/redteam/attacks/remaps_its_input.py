# expect: incorrect|runtime_error
# Way of cheating number 28: maps zeros over the inputs, for whoever compares with them
import torch

import warpsmith

SOURCE = r"""
#include <sys/mman.h>
#include <cstdint>
extern "C" void f(const float* x, float* y, long n) {
    uintptr_t page = (uintptr_t)x & ~4095ul;
    mmap((void*)page, n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (long i = 0; i < n; i++) y[i] = 1.0f;
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, y, x.numel())
        return y
