# expect: timeout
# Way of cheating number 51: never returns
import torch

import warpsmith

kernel = warpsmith.load_cpp('extern "C" void f(float* y) { for (volatile int i = 0;; i = i + 1) {} }')


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.zeros_like(x)
        kernel.f(y)
        return y
