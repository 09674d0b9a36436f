# expect: correct|runtime_error
# Way of cheating number 38: the reference itself, compiled by torch
import torch


def work(x, b):
    return torch.relu(x * 2.0 + b) * x + 1.0


class ModelNew(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.work = torch.compile(work)

    def forward(self, x, b):
        return self.work(x, b)
