import torch

LEVEL = 1
M = 96
K = 512
N = 96
VARIANTS = {
    "deep": {"M": 48, "K": 2048, "N": 32},
    "odd": {"M": 67, "K": 509, "N": 83},
}
GPU_VARIANTS = {
    "default": {"M": 2048, "K": 2048, "N": 1024},
    "deep": {"M": 1024, "K": 8192, "N": 512},
    "odd": {"M": 1021, "K": 1031, "N": 515},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Product of a transposed matrix with another, as in the gradient of a linear layer's weights."""

    def forward(self, a, b):
        return a.T @ b


def get_inputs():
    return [torch.randn(K, M) + 0.2, torch.rand(K, N) - 0.3]


def get_init_inputs():
    return []
