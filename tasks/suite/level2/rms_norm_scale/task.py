import torch

LEVEL = 2
ROWS = 512
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "COLS": 96},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 8192, "COLS": 1536},
    "narrow": {"ROWS": 65536, "COLS": 96},
    "odd": {"ROWS": 1021, "COLS": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """RMS norm with a scale stored as its distance from one."""

    def forward(self, x, weight):
        return x * torch.rsqrt(x.square().mean(dim=1, keepdim=True) + 1e-6) * (1 + weight)


def get_inputs():
    return [torch.randn(ROWS, COLS) + 0.5, torch.randn(COLS) * 0.3]


def get_init_inputs():
    return []
