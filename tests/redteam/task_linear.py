"""A task with parameters, whose values the judge gives to the candidate."""

import torch

ROWS = 384
WIDTH = 96
VARIANTS = {"odd": {"ROWS": 77}}
GPU_VARIANTS = {"default": {"ROWS": 8192, "WIDTH": 512}, "odd": {"ROWS": 77}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(width, width) / width**0.5)
        self.bias = torch.nn.Parameter(torch.randn(width))

    def forward(self, x):
        return torch.relu(torch.nn.functional.linear(x, self.weight, self.bias))


def get_inputs():
    return [torch.randn(ROWS, WIDTH) + 0.3]


def get_init_inputs():
    return [WIDTH]
