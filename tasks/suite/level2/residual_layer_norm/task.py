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
    """Layer norm of a sum."""

    def forward(self, x, residual, weight, bias):
        return torch.nn.functional.layer_norm(x + residual, x.shape[1:], weight, bias)


def get_inputs():
    x = torch.randn(ROWS, COLS) + 0.5
    return [x, torch.randn(ROWS, COLS), torch.rand(COLS) + 0.5, torch.randn(COLS)]


def get_init_inputs():
    return []
