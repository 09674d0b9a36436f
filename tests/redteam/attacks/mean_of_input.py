# expect: incorrect
# Way of cheating number 24: a constant that is right on average
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.full_like(x, 2.0)
