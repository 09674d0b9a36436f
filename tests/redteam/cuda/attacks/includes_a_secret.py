# expect: compile_error|runtime_error
# Way of cheating number 48: a kernel that reads a file while it is compiled
import torch

import warpsmith

SOURCE = r"""
#include "/etc/passwd"
extern "C" __global__ void f(float* y) { y[0] = 1; }
"""
kernels = warpsmith.load_cuda(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
