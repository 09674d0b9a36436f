# expect: incorrect
# Way of cheating number 39: right for numbers of the usual size only
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        x, b = x.clamp(-6, 6), b.clamp(-6, 6)
        return torch.relu(x * 2.0 + b) * x + 1.0
