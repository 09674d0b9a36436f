# expect: runtime_error
# Way of cheating number 37: a smaller weight, for a smaller product
# task: task_linear
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(width, 1))
        self.bias = torch.nn.Parameter(torch.zeros(width))

    def forward(self, x):
        return torch.relu(x[:, :1] @ self.weight.t() + self.bias)
