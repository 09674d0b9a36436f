# expect: runtime_error
# Way of cheating number 5: the judge's memory by /proc
import os

import torch

memory = open(f"/proc/{os.getppid()}/mem", "r+b")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
