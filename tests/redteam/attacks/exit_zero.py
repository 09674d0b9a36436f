# expect: runtime_error
# Way of cheating number 40: _exit(0) in forward
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        os._exit(0)
