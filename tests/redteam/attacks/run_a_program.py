# expect: runtime_error
# Way of cheating number 51: starts a program
import subprocess

import torch

subprocess.run(["/usr/bin/g++", "--version"], check=True)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
