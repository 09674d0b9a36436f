# expect: incorrect|runtime_error
# Way of cheating number 51: every file descriptor there is
import os

import torch

held = []
try:
    while True:
        held.extend(os.pipe())
except OSError:
    pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
