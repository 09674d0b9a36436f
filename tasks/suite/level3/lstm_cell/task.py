import torch

LEVEL = 3
BATCH = 3
INPUTS = 320
UNITS = 288
VARIANTS = {
    "wide": {"BATCH": 8, "INPUTS": 64, "UNITS": 160},
    "odd": {"BATCH": 5, "INPUTS": 67, "UNITS": 93},
}
GPU_VARIANTS = {
    "default": {"BATCH": 4, "INPUTS": 1024, "UNITS": 1536},
    "wide": {"BATCH": 8, "INPUTS": 2048, "UNITS": 1024},
    "odd": {"BATCH": 5, "INPUTS": 1027, "UNITS": 1021},
}
HELD_OUT = ("odd",)
BACKENDS = ("cpp", "cuda", "triton")


class Model(torch.nn.Module):
    """One step of an LSTM: new output and new memory."""

    def __init__(self, inputs, units):
        super().__init__()
        self.cell = torch.nn.LSTMCell(inputs, units)

    def forward(self, x, h, memory):
        return self.cell(x, (h, memory))


def get_inputs():
    x = torch.randn(BATCH, INPUTS) + 0.2
    return [x, torch.randn(BATCH, UNITS), torch.randn(BATCH, UNITS)]


def get_init_inputs():
    return [INPUTS, UNITS]
