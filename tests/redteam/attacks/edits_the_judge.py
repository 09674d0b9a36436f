# expect: runtime_error
# Way of cheating number 50: writes into the judge's own files
import torch

import judge.runner

with open(judge.runner.__file__, "a") as file:
    file.write("\nVERDICT = 'win'\n")


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
