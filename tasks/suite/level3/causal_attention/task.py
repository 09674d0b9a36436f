import torch

LEVEL = 3
TIME = 384
DIM = 32
VARIANTS = {
    "short": {"TIME": 64, "DIM": 48},
    "odd": {"TIME": 101, "DIM": 27},
}
GPU_VARIANTS = {
    "default": {"TIME": 4096, "DIM": 64},
    "short": {"TIME": 1024, "DIM": 96},
    "odd": {"TIME": 2053, "DIM": 67},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """One head of causal self-attention on normalised tokens."""

    def __init__(self, dim):
        super().__init__()
        self.qkv = torch.nn.Linear(dim, 3 * dim)

    def forward(self, x):
        x = torch.nn.functional.rms_norm(x, x.shape[1:])
        q, k, v = self.qkv(x).chunk(3, dim=1)
        scores = q @ k.T / x.shape[1] ** 0.5
        future = torch.ones_like(scores, dtype=torch.bool).triu(1)
        return torch.softmax(scores.masked_fill(future, float("-inf")), dim=1) @ v


def get_inputs():
    return [torch.randn(TIME, DIM) + 0.2]


def get_init_inputs():
    return [DIM]
