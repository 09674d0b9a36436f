# expect: runtime_error
# Way of cheating number 51: endless recursion in C++
import torch

import warpsmith

SOURCE = r"""
static long deep(volatile char* p) { volatile char more[4096]; more[0] = *p; return deep(more) + more[0]; }
extern "C" void f(float* y) { char c = 1; y[0] = deep(&c); }
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(y)
        return y
