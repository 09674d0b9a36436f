import torch

LEVEL = 1
UNITS = 1024
DIM = 1024
VARIANTS = {
    "wide": {"UNITS": 64, "DIM": 8192},
    "odd": {"UNITS": 517, "DIM": 259},
}
GPU_VARIANTS = {
    "default": {"UNITS": 8192, "DIM": 4096},
    "wide": {"UNITS": 1024, "DIM": 16384},
    "odd": {"UNITS": 4099, "DIM": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """A matrix times a vector."""

    def forward(self, a, x):
        return a @ x


def get_inputs():
    return [torch.randn(UNITS, DIM) + 0.1, torch.rand(DIM) - 0.3]


def get_init_inputs():
    return []
