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
    """Cosine of the angle between rows."""

    def forward(self, a, b):
        norms = a.square().sum(dim=1).sqrt() * b.square().sum(dim=1).sqrt()
        return (a * b).sum(dim=1) / norms.clamp(min=1e-8)


def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.5, torch.randn(ROWS, COLS) + 0.3]


def get_init_inputs():
    return []
