import torch

LEVEL = 2
ROWS = 256
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "COLS": 96},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 8192, "COLS": 2048},
    "narrow": {"ROWS": 131072, "COLS": 96},
    "odd": {"ROWS": 2053, "COLS": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Sigmoid focal loss, averaged over each row."""

    def forward(self, x, target):
        x = torch.where(target, x, -x)
        loss = -torch.nn.functional.logsigmoid(x) * torch.sigmoid(-x) ** 2
        return (torch.where(target, 0.25, 0.75) * loss).mean(dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2 - 1, torch.rand(ROWS, COLS) < 0.2]


def get_init_inputs():
    return []
