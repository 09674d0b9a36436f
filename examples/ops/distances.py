"""How far each row is from each of a few centres, as a share of all: a softmax over squared distances."""

import torch

NAME = "distances"
LEVEL = 2
ROWS = 2048
CENTRES = 16
DIM = 32
VARIANTS = {"few": {"ROWS": 256, "CENTRES": 64, "DIM": 16}, "odd": {"ROWS": 333, "CENTRES": 7, "DIM": 33}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def forward(self, x, centres):
        squared = (x.unsqueeze(1) - centres).square().sum(dim=-1)
        return torch.softmax(-squared, dim=-1)


def get_inputs():
    return [torch.randn(ROWS, DIM) * 0.3, torch.randn(CENTRES, DIM) * 0.3]


def get_init_inputs():
    return []
