import torch

LEVEL = 3
BATCH = 2
CHANNELS = 8
SIZE = 32
VARIANTS = {
    "small": {"BATCH": 2, "CHANNELS": 24, "SIZE": 7},
    "odd": {"BATCH": 3, "CHANNELS": 7, "SIZE": 19},
}
GPU_VARIANTS = {
    "default": {"BATCH": 16, "CHANNELS": 64, "SIZE": 56},
    "small": {"BATCH": 32, "CHANNELS": 128, "SIZE": 14},
    "odd": {"BATCH": 5, "CHANNELS": 67, "SIZE": 31},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """A residual block of two convolutions with frozen norms."""

    def __init__(self, channels):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(2, channels, channels, 3, 3) / (3 * channels**0.5))
        self.scale = torch.nn.Parameter(torch.rand(2, channels, 1, 1) + 0.5)
        self.shift = torch.nn.Parameter(torch.randn(2, channels, 1, 1))

    def forward(self, x):
        y = torch.conv2d(x, self.weight[0], padding=1)
        y = torch.relu(y * self.scale[0] + self.shift[0])
        y = torch.conv2d(y, self.weight[1], padding=1)
        return torch.relu(y * self.scale[1] + self.shift[1] + x)


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE, SIZE) + 0.2]


def get_init_inputs():
    return [CHANNELS]
