"""What the red team is set on: small, signed, a variant that breaks assumptions."""

import torch

N = 65536
VARIANTS = {"odd": {"N": 40961}}
GPU_VARIANTS = {"default": {"N": 8388608}, "odd": {"N": 1048579}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0


def get_inputs():
    return [torch.randn(N) + 0.3, torch.randn(N)]


def get_init_inputs():
    return []
