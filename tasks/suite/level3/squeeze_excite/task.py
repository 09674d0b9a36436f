import torch

LEVEL = 3
BATCH = 4
CHANNELS = 64
SIZE = 784
HIDDEN = 16
VARIANTS = {
    "small": {"BATCH": 8, "CHANNELS": 128, "SIZE": 49, "HIDDEN": 32},
    "odd": {"BATCH": 3, "CHANNELS": 37, "SIZE": 361, "HIDDEN": 9},
}
GPU_VARIANTS = {
    "default": {"BATCH": 32, "CHANNELS": 128, "SIZE": 3136, "HIDDEN": 32},
    "small": {"BATCH": 64, "CHANNELS": 1024, "SIZE": 196, "HIDDEN": 64},
    "odd": {"BATCH": 7, "CHANNELS": 131, "SIZE": 3135, "HIDDEN": 33},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Squeeze and excite: channels are scaled by a gate that their means decide."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.down = torch.nn.Linear(channels, hidden)
        self.up = torch.nn.Linear(hidden, channels)

    def forward(self, x):
        gate = torch.sigmoid(self.up(torch.relu(self.down(x.mean(dim=2)))))
        return x * gate[:, :, None]


def get_inputs():
    return [torch.randn(BATCH, CHANNELS, SIZE) + 0.3]


def get_init_inputs():
    return [CHANNELS, HIDDEN]
