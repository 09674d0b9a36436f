import torch

LEVEL = 1
ROWS = 256
CLASSES = 1000
VARIANTS = {
    "narrow": {"ROWS": 2048, "CLASSES": 80},
    "odd": {"ROWS": 61, "CLASSES": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "CLASSES": 8192},
    "narrow": {"ROWS": 131072, "CLASSES": 80},
    "odd": {"ROWS": 2053, "CLASSES": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Cross entropy of each row of logits."""

    def forward(self, logits, target):
        return torch.nn.functional.cross_entropy(logits, target, reduction="none")


def get_inputs():
    return [torch.randn(ROWS, CLASSES) * 2 + 0.5, torch.randint(0, CLASSES, (ROWS,))]


def get_init_inputs():
    return []
