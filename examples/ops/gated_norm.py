"""Layer norm, of whose result one half gates the other."""

import torch
import torch.nn as nn

NAME = "gated_norm"
LEVEL = 2
ROWS = 512
DIM = 1024
VARIANTS = {"small": {"ROWS": 64, "DIM": 256}, "odd": {"ROWS": 61, "DIM": 514}}
HELD_OUT = ("odd",)


class Model(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        a, b = self.norm(x).chunk(2, dim=-1)
        return a * torch.sigmoid(b)


def get_inputs():
    return [torch.randn(ROWS, DIM)]


def get_init_inputs():
    return [DIM]
