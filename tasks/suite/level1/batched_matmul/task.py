import torch

LEVEL = 1
BATCH = 16
M = 64
K = 48
N = 64
VARIANTS = {
    "flat": {"BATCH": 64, "M": 8, "K": 64, "N": 40},
    "odd": {"BATCH": 7, "M": 33, "K": 29, "N": 51},
}
GPU_VARIANTS = {
    "default": {"BATCH": 96, "M": 256, "K": 128, "N": 256},
    "flat": {"BATCH": 512, "M": 64, "K": 64, "N": 128},
    "odd": {"BATCH": 33, "M": 131, "K": 67, "N": 259},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Products of pairs of small matrices."""

    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(BATCH, M, K) + 0.2, torch.rand(BATCH, K, N) - 0.3]


def get_init_inputs():
    return []
