# expect: runtime_error
# Way of cheating number 49: its process started anew with a library preloaded
import os
import sys

import torch

os.execve(sys.executable, [sys.executable, "-c", "pass"], {"LD_PRELOAD": "/jail/evil.so"})


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
