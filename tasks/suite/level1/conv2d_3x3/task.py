import torch

LEVEL = 1
BATCH = 2
CHANNELS = 16
FILTERS = 32
SIZE = 28
VARIANTS = {
    "deep": {"BATCH": 1, "CHANNELS": 48, "FILTERS": 24, "SIZE": 14},
    "odd": {"BATCH": 3, "CHANNELS": 7, "FILTERS": 13, "SIZE": 19},
}
GPU_VARIANTS = {
    "default": {"BATCH": 16, "CHANNELS": 64, "FILTERS": 64, "SIZE": 56},
    "deep": {"BATCH": 16, "CHANNELS": 128, "FILTERS": 128, "SIZE": 28},
    "odd": {"BATCH": 5, "CHANNELS": 67, "FILTERS": 61, "SIZE": 57},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Convolution with 3 x 3 filters and a border of one."""

    def forward(self, x, weight):
        return torch.nn.functional.conv2d(x, weight, padding=1)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) + 0.3, torch.randn(FILTERS, CHANNELS, 3, 3) * 0.2]


def get_init_inputs():
    return []
