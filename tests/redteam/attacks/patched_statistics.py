# expect: incorrect
# Way of cheating number 45: the judge's own functions replaced, were they in this process
import sys

import torch

for name, module in list(sys.modules.items()):
    if name.split(".")[0] in ("judge", "tasks", "numpy", "scipy"):
        for attribute in (
            "check",
            "compare",
            "speedup_interval",
            "pair_log_ratio",
            "median",
            "agree",
            "is_clear_loser",
        ):
            if hasattr(module, attribute):
                setattr(module, attribute, lambda *args, **kwargs: 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
