import torch

LEVEL = 3
BATCH = 16
TIME = 32
DIM = 512
VARIANTS = {
    "long": {"BATCH": 2, "TIME": 100, "DIM": 64},
    "odd": {"BATCH": 3, "TIME": 17, "DIM": 131},
}
GPU_VARIANTS = {
    "default": {"BATCH": 32, "TIME": 128, "DIM": 2048},
    "long": {"BATCH": 4, "TIME": 400, "DIM": 4096},
    "odd": {"BATCH": 3, "TIME": 101, "DIM": 4099},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Diagonal state space scan: h = a * h + x, y = out * h + x."""

    def __init__(self, dim):
        super().__init__()
        self.decay = torch.nn.Parameter(torch.randn(dim) + 1)
        self.out = torch.nn.Parameter(torch.randn(dim))

    def forward(self, x):
        a, h, y = torch.sigmoid(self.decay), torch.zeros_like(x[:, 0]), []
        for t in range(x.shape[1]):
            h = a * h + x[:, t]
            y.append(self.out * h + x[:, t])
        return torch.stack(y, dim=1)


def get_inputs():
    return [torch.randn(BATCH, TIME, DIM) + 0.2]


def get_init_inputs():
    return [DIM]
