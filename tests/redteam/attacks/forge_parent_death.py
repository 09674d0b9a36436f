# expect: incorrect
# Way of cheating number 40: would outlive the judge
import torch

import warpsmith

SOURCE = r"""
#include <sys/prctl.h>
extern "C" void f(float* y) { y[0] = prctl(PR_SET_PDEATHSIG, 0) + prctl(PR_SET_DUMPABLE, 1); }
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(y)
        return y
