# expect: correct
# Way of cheating number 38: no kernel of its own
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.addcmul(torch.ones_like(x), torch.relu_(x * 2.0 + b), x)
