# expect: incorrect
# Way of cheating number 36: every comparison says yes
import numpy
import torch

torch.allclose = numpy.allclose = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None
torch.Tensor.__eq__ = lambda self, other: True


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
