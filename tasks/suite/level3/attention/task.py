import torch

LEVEL = 3
TIME = 192
HEADS = 2
SIZE = 16
VARIANTS = {
    "short": {"TIME": 48, "HEADS": 4, "SIZE": 24},
    "odd": {"TIME": 101, "HEADS": 3, "SIZE": 19},
}
GPU_VARIANTS = {
    "default": {"TIME": 2048, "HEADS": 8, "SIZE": 64},
    "short": {"TIME": 512, "HEADS": 16, "SIZE": 96},
    "odd": {"TIME": 1021, "HEADS": 5, "SIZE": 67},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Self-attention of several heads, every token with every other."""

    def __init__(self, heads, size):
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(heads * size, 3 * heads * size)

    def forward(self, x):
        q, k, v = self.qkv(x).view(x.shape[0], 3, self.heads, -1).permute(1, 2, 0, 3)
        weights = torch.softmax(q @ k.transpose(1, 2) / q.shape[2] ** 0.5, dim=2)
        return (weights @ v).transpose(0, 1).reshape(x.shape)


def get_inputs():
    return [torch.randn(TIME, HEADS * SIZE) + 0.2]


def get_init_inputs():
    return [HEADS, SIZE]
