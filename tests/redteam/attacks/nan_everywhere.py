# expect: incorrect
# Way of cheating number 26: NaN as a wildcard
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.full_like(x, float("nan"))
