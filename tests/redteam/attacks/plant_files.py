# expect: incorrect
# Way of cheating number 47: modules that the next process would import
import os

import torch

for name in ("torch.py", "sitecustomize.py", "warpsmith.py", "judge/__init__.py"):
    for folder in (".", "/tmp", os.path.dirname(torch.__file__)):
        try:
            with open(os.path.join(folder, name), "w") as file:
                file.write("raise SystemExit")
        except OSError:
            pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
