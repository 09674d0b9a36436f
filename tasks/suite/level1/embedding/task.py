import torch

LEVEL = 1
WORDS = 5000
DIM = 256
TOKENS = 2048
VARIANTS = {
    "wide": {"WORDS": 500, "DIM": 1024, "TOKENS": 512},
    "odd": {"WORDS": 1001, "DIM": 131, "TOKENS": 517},
}
GPU_VARIANTS = {
    "default": {"WORDS": 50000, "DIM": 1024, "TOKENS": 16384},
    "wide": {"WORDS": 20000, "DIM": 4096, "TOKENS": 4096},
    "odd": {"WORDS": 30001, "DIM": 771, "TOKENS": 8191},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """The table's row for each token."""

    def forward(self, tokens, table):
        return torch.nn.functional.embedding(tokens, table)


def get_inputs():
    return [torch.randint(0, WORDS, (TOKENS,)), torch.randn(WORDS, DIM) + 0.2]


def get_init_inputs():
    return []
