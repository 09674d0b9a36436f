# expect: incorrect
# Way of cheating number 20: memory that may hold somebody's old answer
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.empty_like(x)
