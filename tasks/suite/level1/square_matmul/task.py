import torch

LEVEL = 1
N = 192
VARIANTS = {
    "larger": {"N": 256},
    "odd": {"N": 131},
}
GPU_VARIANTS = {
    "default": {"N": 2048},
    "larger": {"N": 3072},
    "odd": {"N": 1021},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Product of two square matrices."""

    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(N, N) + 0.2, torch.rand(N, N) - 0.3]


def get_init_inputs():
    return []
