import torch

LEVEL = 1
ROWS = 1024
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 4096, "COLS": 80},
    "odd": {"ROWS": 517, "COLS": 131},
}
GPU_VARIANTS = {
    "default": {"ROWS": 16384, "COLS": 2048},
    "narrow": {"ROWS": 262144, "COLS": 80},
    "odd": {"ROWS": 16381, "COLS": 1031},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Sum of each column."""

    def forward(self, x):
        return x.sum(dim=0)


def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.3]


def get_init_inputs():
    return []
