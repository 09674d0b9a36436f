# expect: incorrect
# Way of cheating number 29: the input again, as a view with other strides
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return x.view(-1, 1).t().squeeze(0)
