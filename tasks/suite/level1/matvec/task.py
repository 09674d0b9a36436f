import torch

LEVEL = 1
ROWS = 1024
COLS = 1024
VARIANTS = {
    "wide": {"ROWS": 64, "COLS": 8192},
    "odd": {"ROWS": 517, "COLS": 259},
}
GPU_VARIANTS = {
    "default": {"ROWS": 8192, "COLS": 4096},
    "wide": {"ROWS": 1024, "COLS": 16384},
    "odd": {"ROWS": 4099, "COLS": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """A matrix times a vector."""

    def forward(self, a, x):
        return a @ x


def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.1, torch.rand(COLS) - 0.3]


def get_init_inputs():
    return []
