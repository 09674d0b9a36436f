import torch

LEVEL = 3
TOKENS = 16
EXPERTS = 8
DIM = 96
HIDDEN = 192
VARIANTS = {
    "few": {"TOKENS": 64, "EXPERTS": 3, "DIM": 64, "HIDDEN": 96},
    "odd": {"TOKENS": 13, "EXPERTS": 5, "DIM": 67, "HIDDEN": 131},
}
GPU_VARIANTS = {
    "default": {"TOKENS": 2048, "EXPERTS": 8, "DIM": 512, "HIDDEN": 1024},
    "few": {"TOKENS": 1024, "EXPERTS": 4, "DIM": 512, "HIDDEN": 1024},
    "odd": {"TOKENS": 1021, "EXPERTS": 5, "DIM": 259, "HIDDEN": 515},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """Mixture of experts: each token goes to the one its gate prefers."""

    def __init__(self, experts, dim, hidden):
        super().__init__()
        self.gate = torch.nn.Linear(dim, experts)
        self.up = torch.nn.Parameter(torch.randn(experts, dim, hidden) / dim**0.5)
        self.down = torch.nn.Parameter(torch.randn(experts, hidden, dim) / hidden**0.5)

    def forward(self, x):
        share, chosen = torch.softmax(self.gate(x), dim=1).max(dim=1)
        y = torch.zeros_like(x)
        for e in range(len(self.up)):
            out = torch.relu(x @ self.up[e]) @ self.down[e]
            y += torch.where(chosen == e, share, 0)[:, None] * out
        return y


def get_inputs():
    return [torch.randn(TOKENS, DIM) + 0.2]


def get_init_inputs():
    return [EXPERTS, DIM, HIDDEN]
