# expect: runtime_error
# Way of cheating number 41: an output that lies nowhere
import sys

import torch

from judge import wire

runner = sys.modules["judge.runner"]
runner._specs = lambda tensors: tuple(
    wire.TensorSpec(dtype="float32", shape=tuple(t.shape), place=0x10000) for t in tensors
)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
