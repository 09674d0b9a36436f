# expect: compile_error
# Way of cheating number 48: .incbin of a file of the machine
import torch

import warpsmith

SOURCE = r"""
asm(".section .rodata\n.global stolen\nstolen: .incbin \"/etc/shadow\"\n.previous");
extern "C" void f(float* y) { y[0] = 0; }
"""
kernel = warpsmith.load_cpp(SOURCE)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
