import torch

LEVEL = 3
TIME = 4
DIM = 384
HIDDEN = 1024
VARIANTS = {
    "long": {"TIME": 48, "DIM": 64, "HIDDEN": 160},
    "odd": {"TIME": 11, "DIM": 67, "HIDDEN": 259},
}
GPU_VARIANTS = {
    "default": {"TIME": 2048, "DIM": 512, "HIDDEN": 2048},
    "long": {"TIME": 4096, "DIM": 256, "HIDDEN": 1024},
    "odd": {"TIME": 1021, "DIM": 515, "HIDDEN": 1031},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """A transformer's feed-forward block: layer norm, two linear layers, residual."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.norm = torch.nn.LayerNorm(dim)
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def get_inputs():
    return [torch.randn(TIME, DIM) + 0.2]


def get_init_inputs():
    return [DIM, HIDDEN]
