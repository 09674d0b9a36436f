# expect: runtime_error
# Way of cheating number 48: code that runs when the library is loaded
import torch

import warpsmith

SOURCE = r"""
#include <unistd.h>
__attribute__((constructor)) static void first() { _exit(0); }
extern "C" void f(float* y) { y[0] = 0; }
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
