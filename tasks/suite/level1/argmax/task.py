import torch

LEVEL = 1
ROWS = 512
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 2048, "COLS": 80},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 8192, "COLS": 4096},
    "narrow": {"ROWS": 262144, "COLS": 80},
    "odd": {"ROWS": 4099, "COLS": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Where the largest value of each row is, the first one of equals."""

    def forward(self, x):
        return torch.argmax(x, dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.3]


def get_init_inputs():
    return []
