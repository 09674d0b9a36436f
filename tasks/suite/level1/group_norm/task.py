import torch

LEVEL = 1
BATCH = 8
CHANNELS = 64
SIZE = 24
VARIANTS = {
    "small": {"BATCH": 4, "CHANNELS": 96, "SIZE": 16},
    "odd": {"BATCH": 3, "CHANNELS": 24, "SIZE": 13},
}
GPU_VARIANTS = {
    "default": {"BATCH": 32, "CHANNELS": 256, "SIZE": 32},
    "small": {"BATCH": 64, "CHANNELS": 96, "SIZE": 32},
    "odd": {"BATCH": 31, "CHANNELS": 72, "SIZE": 57},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Group norm of images with eight groups."""

    def forward(self, x, weight, bias):
        return torch.nn.functional.group_norm(x, 8, weight, bias)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) + 0.5, torch.randn(CHANNELS) + 1, torch.randn(CHANNELS)]


def get_init_inputs():
    return []
