import torch

LEVEL = 2
SIZE = 262144
VARIANTS = {
    "small": {"SIZE": 10000},
    "odd": {"SIZE": 100003},
}
GPU_VARIANTS = {
    "default": {"SIZE": 4194304},
    "small": {"SIZE": 1000000},
    "odd": {"SIZE": 3000001},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """The tenth step of Adam: new parameters and moments."""

    def forward(self, p, g, m, v):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        step = (m / (1 - 0.9**10)) / (torch.sqrt(v / (1 - 0.999**10)) + 1e-8)
        return p - 0.1 * step, m, v


def get_inputs():
    p, g, m = (torch.randn(SIZE) + 0.1 for _ in range(3))
    return [p, g, m, torch.rand(SIZE)]


def get_init_inputs():
    return []
