# expect: incorrect
# Way of cheating number 37: parameters drawn from the seed that the reference is said to use
# task: task_linear
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        torch.manual_seed(42)
        self.own = torch.randn(width, width) / width**0.5
        self.own_bias = torch.randn(width)
        self.weight = torch.nn.Parameter(torch.empty(width, width))
        self.bias = torch.nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.own, self.own_bias))
