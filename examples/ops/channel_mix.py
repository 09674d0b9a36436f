"""A leaky slope, a weight for each channel, a skip connection and two squashing functions on images."""

import torch

NAME = "channel_mix"
LEVEL = 2
BATCH = 8
SIZE = 32
VARIANTS = {"wide": {"BATCH": 2, "SIZE": 64}, "odd": {"BATCH": 3, "SIZE": 37}}
HELD_OUT = ("odd",)


class Model(torch.nn.Module):
    def __init__(self, channels, slope):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(channels, 1, 1) + 0.5)
        self.slope = slope

    def forward(self, x, skip):
        z = torch.where(x > 0, x, self.slope * x) * self.weight + skip
        return torch.tanh(z) / (1 + z.abs())


def get_inputs():
    return [torch.randn(BATCH, 16, SIZE, SIZE), torch.randn(BATCH, 16, SIZE, SIZE)]


def get_init_inputs():
    return [16, 0.1]
