# expect: win|correct
# Honest, though it may look odd: scratch memory by mmap, given back at once
import torch

import warpsmith

SOURCE = r"""
#include <sys/mman.h>
extern "C" void f(const float* x, const float* b, float* y, long n) {
    float* room = (float*)mmap(nullptr, n * 4, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (long i = 0; i < n; i++) { float t = x[i] * 2.0f + b[i]; room[i] = t > 0 ? t : 0; }
    for (long i = 0; i < n; i++) y[i] = room[i] * x[i] + 1.0f;
    munmap(room, n * 4);
}
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        kernel.f(x, b, y, x.numel())
        return y
