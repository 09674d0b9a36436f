# expect: incorrect
# Way of cheating number 25: one element that broadcasts
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.ones(1)
