import torch

LEVEL = 1
M = 4096
K = 128
N = 8
VARIANTS = {
    "thin": {"M": 1024, "K": 256, "N": 3},
    "odd": {"M": 517, "K": 67, "N": 11},
}
GPU_VARIANTS = {
    "default": {"M": 65536, "K": 512, "N": 8},
    "thin": {"M": 131072, "K": 256, "N": 3},
    "odd": {"M": 65537, "K": 131, "N": 11},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """A tall matrix times a narrow one."""

    def forward(self, a, b):
        return a @ b


def get_inputs():
    return [torch.randn(M, K) + 0.2, torch.rand(K, N) - 0.3]


def get_init_inputs():
    return []
