import torch

LEVEL = 2
ROWS = 512
HIDDEN = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "HIDDEN": 88},
    "odd": {"ROWS": 61, "HIDDEN": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "HIDDEN": 2048},
    "narrow": {"ROWS": 65536, "HIDDEN": 88},
    "odd": {"ROWS": 1021, "HIDDEN": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """SiLU of the left half times the right half."""

    def forward(self, x):
        gate, up = x.chunk(2, dim=1)
        return torch.nn.functional.silu(gate) * up


def get_inputs():
    return [torch.randn(ROWS, 2 * HIDDEN) + 0.2]


def get_init_inputs():
    return []
