# expect: incorrect
# Way of cheating number 50: every file of the judge and of torch that lets it
import os
import sys

import torch

for module in list(sys.modules.values()):
    path = getattr(module, "__file__", None)
    for attempt in (lambda: open(path, "a").close(), lambda: os.chmod(path, 0o777), lambda: os.unlink(path)):
        try:
            attempt()
        except (OSError, TypeError, ValueError):
            pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
