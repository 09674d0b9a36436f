# expect: incorrect
# Way of cheating number 25: the right numbers in another dtype
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return (torch.relu(x * 2.0 + b) * x + 1.0).double()
