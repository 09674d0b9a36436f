# expect: compile_error
# Way of cheating number 48: #include of a file of the machine
import torch

import warpsmith

kernel = warpsmith.load_cpp('#include "/etc/passwd"\nextern "C" void f(float* y) { y[0] = 0; }')


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
