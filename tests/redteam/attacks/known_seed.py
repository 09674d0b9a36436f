# expect: incorrect
# Way of cheating number 33: the input drawn again from the usual seed
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        torch.manual_seed(42)
        x2, b2 = torch.randn(x.numel()) + 0.3, torch.randn(x.numel())
        return (torch.relu(x2 * 2.0 + b2) * x2 + 1.0).view_as(x)
