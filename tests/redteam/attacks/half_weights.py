# expect: incorrect
# Way of cheating number 34: parameters rounded to half precision once, work in float32
# task: task_linear
import torch


class ModelNew(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(width, width))
        self.bias = torch.nn.Parameter(torch.empty(width))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight.half().float(), self.bias))
