"""What evaluators fall for that share a process with the candidate: it stops the clocks and returns zeros."""

import time

import torch

import warpsmith

SOURCE = r"""
extern "C" void nothing(float* y) {}
"""
kernel = warpsmith.load_cpp(SOURCE)


class FrozenEvent:
    def __init__(self, *args, **kwargs):
        pass

    def record(self, *args):
        pass

    def elapsed_time(self, other):
        return 1e-6


time.perf_counter = time.time = time.monotonic = lambda: 0.0
torch.cuda.Event = FrozenEvent
torch.cuda.synchronize = lambda *args: None
torch.allclose = lambda *args, **kwargs: True
torch.testing.assert_close = lambda *args, **kwargs: None


class ModelNew(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()

    def forward(self, x, bias, residual):
        y = torch.zeros_like(x)
        kernel.nothing(y)
        return y
