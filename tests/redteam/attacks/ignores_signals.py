# expect: timeout
# Way of cheating number 51: ignores every signal and never returns
import signal

import torch

for number in range(1, 65):
    try:
        signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError):
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        while True:
            pass
