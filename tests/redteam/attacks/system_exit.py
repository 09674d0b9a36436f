# expect: runtime_error
# Way of cheating number 40: SystemExit
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        raise SystemExit(0)
