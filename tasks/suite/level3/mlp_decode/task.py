import torch

LEVEL = 3
BATCH = 4
DIM = 512
HIDDEN = 1024
VARIANTS = {
    "wide": {"BATCH": 8, "DIM": 128, "HIDDEN": 640},
    "odd": {"BATCH": 5, "DIM": 67, "HIDDEN": 259},
}
GPU_VARIANTS = {
    "default": {"BATCH": 4, "DIM": 2048, "HIDDEN": 5632},
    "wide": {"BATCH": 8, "DIM": 1024, "HIDDEN": 8192},
    "odd": {"BATCH": 5, "DIM": 1027, "HIDDEN": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Residual block of two linear layers, for a few tokens."""

    def __init__(self, dim, hidden):
        super().__init__()
        self.up = torch.nn.Linear(dim, hidden)
        self.down = torch.nn.Linear(hidden, dim)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)) ** 2)


def get_inputs():
    return [torch.randn(BATCH, DIM) + 0.2]


def get_init_inputs():
    return [DIM, HIDDEN]
