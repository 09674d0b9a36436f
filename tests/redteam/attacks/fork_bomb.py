# expect: runtime_error
# Way of cheating number 51: fork
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        while True:
            os.fork()
