import torch

LEVEL = 2
ROWS = 256
COLS = 1024
VARIANTS = {
    "narrow": {"ROWS": 1024, "COLS": 96},
    "odd": {"ROWS": 61, "COLS": 1031},
}
GPU_VARIANTS = {
    "default": {"ROWS": 4096, "COLS": 2048},
    "narrow": {"ROWS": 65536, "COLS": 96},
    "odd": {"ROWS": 1021, "COLS": 2051},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """KL divergence of each row's student from its teacher, both given as logits."""

    def forward(self, student, teacher):
        q = torch.log_softmax(student, dim=1)
        p = torch.log_softmax(teacher, dim=1)
        return (p.exp() * (p - q)).sum(dim=1)


def get_inputs():
    return [torch.randn(ROWS, COLS) * 2 + 0.5, torch.randn(ROWS, COLS) * 2]


def get_init_inputs():
    return []
