import torch

LEVEL = 2
BATCH = 8
TIME = 128
DIM = 512
VARIANTS = {
    "narrow": {"BATCH": 32, "TIME": 100, "DIM": 64},
    "odd": {"BATCH": 3, "TIME": 61, "DIM": 259},
}
GPU_VARIANTS = {
    "default": {"BATCH": 32, "TIME": 512, "DIM": 1024},
    "narrow": {"BATCH": 256, "TIME": 1000, "DIM": 64},
    "odd": {"BATCH": 7, "TIME": 1021, "DIM": 1027},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Mean of the tokens that the mask keeps."""

    def forward(self, x, mask):
        kept = mask.to(x.dtype)[:, :, None]
        return (x * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1)


def get_inputs():
    return [torch.randn(BATCH, TIME, DIM) + 0.2, torch.rand(BATCH, TIME) < 0.7]


def get_init_inputs():
    return []
