import torch

LEVEL = 2
HEADS = 8
QUERIES = 64
KEYS = 512
VARIANTS = {
    "narrow": {"HEADS": 16, "QUERIES": 64, "KEYS": 80},
    "odd": {"HEADS": 3, "QUERIES": 37, "KEYS": 331},
}
GPU_VARIANTS = {
    "default": {"HEADS": 16, "QUERIES": 512, "KEYS": 1024},
    "narrow": {"HEADS": 64, "QUERIES": 1024, "KEYS": 80},
    "odd": {"HEADS": 7, "QUERIES": 301, "KEYS": 1031},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Softmax of scores that fall with the distance of a key."""

    def forward(self, x, slopes):
        place = torch.arange(x.shape[2], device=x.device)
        distance = (place[: x.shape[1], None] - place).abs()
        return torch.softmax(x - slopes[:, None, None] * distance, dim=2)


def get_inputs():
    return [torch.randn(HEADS, QUERIES, KEYS) * 2 + 0.5, torch.rand(HEADS) * 0.2]


def get_init_inputs():
    return []
