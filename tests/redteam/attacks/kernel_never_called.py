# expect: correct
# Way of cheating number 38: a kernel for show
import torch

import warpsmith

kernel = warpsmith.load_cpp('extern "C" void f(float* y) { y[0] = 0; }')


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.addcmul(torch.ones_like(x), torch.relu_(x * 2.0 + b), x)
