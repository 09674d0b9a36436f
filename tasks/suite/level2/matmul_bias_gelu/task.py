import torch

LEVEL = 2
ROWS = 128
DIM = 96
UNITS = 512
VARIANTS = {
    "wide": {"ROWS": 16, "DIM": 128, "UNITS": 640},
    "odd": {"ROWS": 37, "DIM": 131, "UNITS": 259},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "DIM": 1024, "UNITS": 2048},
    "wide": {"ROWS": 1024, "DIM": 512, "UNITS": 4096},
    "odd": {"ROWS": 1021, "DIM": 515, "UNITS": 1027},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """GELU of a linear layer whose weights are stored input by output."""

    def forward(self, x, weight, bias):
        return torch.nn.functional.gelu(x @ weight + bias)


def get_inputs():
    weight = torch.randn(DIM, UNITS) / DIM**0.5
    return [torch.randn(ROWS, DIM) + 0.2, weight, torch.randn(UNITS)]


def get_init_inputs():
    return []
