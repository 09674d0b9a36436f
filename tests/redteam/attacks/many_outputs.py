# expect: incorrect
# Way of cheating number 41: a million outputs
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return [torch.zeros(1)] * 1_000_000
