# expect: incorrect
# Way of cheating number 22: zeros under an absolute tolerance
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
