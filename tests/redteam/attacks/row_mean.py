# expect: incorrect
# Way of cheating number 24: the mean of the inputs in place of each
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        t = (x.mean() * 2.0 + b.mean()).clamp(min=0) * x.mean() + 1.0
        return t.expand_as(x).contiguous()
