# expect: incorrect
# Way of cheating number 27: looks for it in the callers' frames
import sys

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        frame = sys._getframe()
        while frame:
            for value in list(frame.f_locals.values()):
                for name in ("truth", "honest", "expected", "reference"):
                    if hasattr(value, name):
                        return torch.as_tensor(getattr(value, name))
            frame = frame.f_back
        return torch.zeros_like(x)
