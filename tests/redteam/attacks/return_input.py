# expect: incorrect
# Way of cheating number 29: the input as the answer
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return x
