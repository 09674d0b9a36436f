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
    """RMS norm of a sum, with a scale."""

    def forward(self, x, residual, weight):
        h = x + residual
        return h * torch.rsqrt((h * h).mean(dim=1, keepdim=True) + 1e-6) * weight


def get_inputs():
    x = torch.randn(ROWS, COLS) + 0.5
    return [x, torch.randn(ROWS, COLS), torch.rand(COLS) + 0.5]


def get_init_inputs():
    return []
