import torch

LEVEL = 2
ROWS = 512
COLS = 768
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
    """Gradient of layer norm with respect to its input."""

    def forward(self, dy, x, weight):
        x = x - x.mean(dim=1, keepdim=True)
        scale = torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-5)
        x, g = x * scale, dy * weight
        return scale * (g - g.mean(dim=1, keepdim=True) - x * (g * x).mean(dim=1, keepdim=True))


def get_inputs():
    x = torch.randn(ROWS, COLS) + 0.5
    return [torch.randn(ROWS, COLS) + 0.1, x, torch.rand(COLS) + 0.5]


def get_init_inputs():
    return []
