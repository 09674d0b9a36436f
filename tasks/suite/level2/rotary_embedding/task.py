import torch

LEVEL = 2
TIME = 256
HEADS = 16
HALF = 64
VARIANTS = {
    "narrow": {"TIME": 1024, "HEADS": 4, "HALF": 16},
    "odd": {"TIME": 61, "HEADS": 3, "HALF": 67},
}
GPU_VARIANTS = {
    "default": {"TIME": 4096, "HEADS": 16, "HALF": 64},
    "narrow": {"TIME": 32768, "HEADS": 8, "HALF": 32},
    "odd": {"TIME": 2053, "HEADS": 7, "HALF": 67},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Rotary position embedding of queries: halves of each head turn by an angle."""

    def forward(self, x, cos, sin):
        a, b = x.chunk(2, dim=2)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat([a * cos - b * sin, b * cos + a * sin], dim=2)


def get_inputs():
    angle = torch.rand(TIME, HALF) * 6.28
    return [torch.randn(TIME, HEADS, 2 * HALF) + 0.2, angle.cos(), angle.sin()]


def get_init_inputs():
    return []
