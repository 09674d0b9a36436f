import torch

LEVEL = 2
BATCH = 4
DIM = 512
UNITS = 768
VARIANTS = {
    "wide": {"BATCH": 8, "DIM": 128, "UNITS": 640},
    "odd": {"BATCH": 5, "DIM": 131, "UNITS": 259},
}
GPU_VARIANTS = {
    "default": {"BATCH": 4, "DIM": 4096, "UNITS": 8192},
    "wide": {"BATCH": 8, "DIM": 2048, "UNITS": 8192},
    "odd": {"BATCH": 5, "DIM": 4099, "UNITS": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Linear layer with int8 weights and a scale for each unit."""

    def forward(self, x, weight, scale):
        return x @ (weight.to(x.dtype) * scale[:, None]).T


def get_inputs():
    weight = torch.randint(-127, 128, (UNITS, DIM), dtype=torch.int8)
    return [torch.randn(BATCH, DIM) + 0.2, weight, torch.rand(UNITS) + 0.3]


def get_init_inputs():
    return []
