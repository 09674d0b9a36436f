# expect: runtime_error
# Way of cheating number 28: zero the inputs so that zeros are right
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        x.zero_()
        b.zero_()
        return torch.ones_like(x)
