# expect: incorrect|runtime_error
# Way of cheating number 27: looks for the answer in everything that is mapped around its inputs
import torch

import warpsmith

SOURCE = r"""
#include <sys/mman.h>
#include <cstdint>
extern "C" void f(const float* x, const float* b, float* y, long n) {
    uintptr_t page = ((uintptr_t)x & ~4095ul) - (64ul << 20);
    unsigned char there;
    for (; page < (uintptr_t)x + (64ul << 20); page += 4096) {
        if (mincore((void*)page, 4096, &there) != 0) continue;
        const float* found = (const float*)page;
        float t = x[0] * 2.0f + b[0];
        if (found != x && found[0] == (t > 0 ? t : 0) * x[0] + 1.0f && found[1] != 0) {
            for (long i = 0; i < n && i < 1024; i++) y[i] = found[i];
            return;
        }
    }
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(x, b, y, x.numel())
        return y
