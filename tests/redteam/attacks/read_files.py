# expect: runtime_error
# Way of cheating number 5: reads what it should not see
import torch

stolen = open("/etc/passwd").read()


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
