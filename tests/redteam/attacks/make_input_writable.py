# expect: runtime_error|incorrect
# Way of cheating number 28: mprotect the input first
import torch

import warpsmith

SOURCE = r"""
#include <sys/mman.h>
#include <cstdint>
extern "C" void f(const float* x, float* y, long n) {
    uintptr_t page = (uintptr_t)x & ~4095ul;
    mprotect((void*)page, n * 4, PROT_READ | PROT_WRITE);
    for (long i = 0; i < n; i++) { ((float*)x)[i] = 0; y[i] = 1; }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, y, x.numel())
        return y
