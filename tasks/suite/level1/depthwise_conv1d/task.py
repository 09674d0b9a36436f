import torch

LEVEL = 1
BATCH = 8
CHANNELS = 64
LENGTH = 512
VARIANTS = {
    "long": {"BATCH": 2, "CHANNELS": 32, "LENGTH": 2048},
    "odd": {"BATCH": 3, "CHANNELS": 17, "LENGTH": 401},
}
GPU_VARIANTS = {
    "default": {"BATCH": 16, "CHANNELS": 512, "LENGTH": 2048},
    "long": {"BATCH": 4, "CHANNELS": 256, "LENGTH": 16384},
    "odd": {"BATCH": 7, "CHANNELS": 513, "LENGTH": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Each channel convolved with five weights of its own."""

    def forward(self, x, weight):
        return torch.nn.functional.conv1d(x, weight, padding=2, groups=weight.shape[0])


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, LENGTH) + 0.3, torch.randn(CHANNELS, 1, 5)]


def get_init_inputs():
    return []
