import torch

LEVEL = 2
ROWS = 128
DIM = 64
CLASSES = 512
VARIANTS = {
    "narrow": {"ROWS": 128, "DIM": 64, "CLASSES": 100},
    "odd": {"ROWS": 37, "DIM": 67, "CLASSES": 331},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "DIM": 256, "CLASSES": 4096},
    "narrow": {"ROWS": 16384, "DIM": 256, "CLASSES": 100},
    "odd": {"ROWS": 1021, "DIM": 259, "CLASSES": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Cross entropy of a linear layer, mean over rows."""

    def forward(self, x, weight, target):
        return torch.nn.functional.cross_entropy(x @ weight, target)


def get_inputs():
    weight = torch.randn(DIM, CLASSES) / DIM**0.5
    return [torch.randn(ROWS, DIM) + 0.2, weight, torch.randint(CLASSES, (ROWS,))]


def get_init_inputs():
    return []
