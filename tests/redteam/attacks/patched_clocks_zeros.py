# expect: incorrect
# Way of cheating number 1: frozen clocks, zeros
import time

import torch

time.perf_counter = time.time = time.monotonic = lambda: 0.0
torch.cuda.synchronize = lambda *args: None


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
