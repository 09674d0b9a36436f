# expect: incorrect
# Way of cheating number 41: a shape that would fill the judge's memory
import sys

import torch

from judge import wire

runner = sys.modules["judge.runner"]
runner._specs = lambda tensors: (wire.TensorSpec(dtype="float32", shape=(1 << 40, 1 << 20), place=0x10000),)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
