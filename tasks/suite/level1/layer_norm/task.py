import torch

LEVEL = 1
ROWS = 512
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 2048, "COLS": 80},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 8192, "COLS": 2048},
    "narrow": {"ROWS": 131072, "COLS": 80},
    "odd": {"ROWS": 2053, "COLS": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Layer norm of each row."""

    def forward(self, x, weight, bias):
        return torch.nn.functional.layer_norm(x, x.shape[1:], weight, bias)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2 + 0.5, torch.randn(COLS) * 0.3 + 1, torch.randn(COLS)]


def get_init_inputs():
    return []
