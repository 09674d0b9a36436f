import torch

LEVEL = 2
ROWS = 512
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "COLS": 96},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "COLS": 4096},
    "narrow": {"ROWS": 65536, "COLS": 96},
    "odd": {"ROWS": 2053, "COLS": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Soft cap of shifted logits, clipped at both ends."""

    def forward(self, x, shift):
        return torch.clamp(3 * torch.tanh((x + shift) * 0.4), -2.5, 2.75)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 3 + 0.5, torch.randn(COLS)]


def get_init_inputs():
    return []
