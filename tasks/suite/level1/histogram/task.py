import torch

LEVEL = 1
COUNT = 200000
SPREAD = 60
VARIANTS = {
    "crowded": {"COUNT": 100000, "SPREAD": 3},
    "odd": {"COUNT": 70001, "SPREAD": 101},
}
GPU_VARIANTS = {
    "default": {"COUNT": 8388608, "SPREAD": 60},
    "crowded": {"COUNT": 8388608, "SPREAD": 3},
    "odd": {"COUNT": 4000037, "SPREAD": 101},
}
HELD_OUT = ("odd",)
DISTRIBUTIONS = ("given",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """How often each number from 0 to 255 occurs."""

    def forward(self, x):
        return torch.bincount(x, minlength=256)


def get_inputs():
    return [(torch.randn(COUNT) * SPREAD).abs().long().clamp(max=255)]


def get_init_inputs():
    return []
