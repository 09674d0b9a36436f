"""A task so small on a GPU that launches are most of its time."""

import torch

N = 4096
VARIANTS = {"odd": {"N": 4001}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0


def get_inputs():
    return [torch.randn(N) + 0.3, torch.randn(N)]


def get_init_inputs():
    return []
