# expect: incorrect
# Way of cheating number 35: flags that would change the reference too, were it in this process
import torch

torch.set_default_dtype(torch.float16)
torch.set_float32_matmul_precision("medium")
torch.set_flush_denormal(True)
torch.use_deterministic_algorithms(False)
torch.nn.functional.relu = torch.relu = lambda x: x
torch.Tensor.__mul__ = lambda self, other: self


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x
