import torch

LEVEL = 2
ROWS = 512
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "COLS": 96},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "COLS": 2048},
    "narrow": {"ROWS": 65536, "COLS": 96},
    "odd": {"ROWS": 1021, "COLS": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """SiLU of x plus a bias, times a gate."""

    def forward(self, x, bias, gate):
        return torch.nn.functional.silu(x + bias) * gate


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2, torch.randn(COLS) + 0.2, torch.randn(ROWS, COLS)]


def get_init_inputs():
    return []
