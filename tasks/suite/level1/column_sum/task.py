import torch

LEVEL = 1
BATCH = 1024
UNITS = 1024
VARIANTS = {
    "narrow": {"BATCH": 4096, "UNITS": 80},
    "odd": {"BATCH": 517, "UNITS": 131},
}
GPU_VARIANTS = {
    "default": {"BATCH": 16384, "UNITS": 2048},
    "narrow": {"BATCH": 262144, "UNITS": 80},
    "odd": {"BATCH": 16381, "UNITS": 1031},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Sum of each column."""

    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(BATCH, UNITS) + 0.3]


def get_init_inputs():
    return []
