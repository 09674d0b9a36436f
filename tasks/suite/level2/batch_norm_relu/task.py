import torch

LEVEL = 2
BATCH = 8
CHANNELS = 64
SIZE = 1024
VARIANTS = {
    "narrow": {"BATCH": 16, "CHANNELS": 128, "SIZE": 64},
    "odd": {"BATCH": 3, "CHANNELS": 37, "SIZE": 961},
}
GPU_VARIANTS = {
    "default": {"BATCH": 32, "CHANNELS": 128, "SIZE": 3136},
    "narrow": {"BATCH": 64, "CHANNELS": 512, "SIZE": 64},
    "odd": {"BATCH": 7, "CHANNELS": 131, "SIZE": 3135},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Batch norm with given statistics, then ReLU."""

    def forward(self, x, mean, var, weight, bias):
        return torch.relu(torch.nn.functional.batch_norm(x, mean, var, weight, bias))


def get_inputs():
    x = torch.randn(BATCH, CHANNELS, SIZE) * 2 + 0.5
    mean, weight, bias = (torch.randn(CHANNELS) for _ in range(3))
    return [x, mean, torch.rand(CHANNELS) + 0.5, weight, bias]


def get_init_inputs():
    return []
