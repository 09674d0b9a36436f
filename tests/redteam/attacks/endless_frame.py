# expect: rejected
# Way of cheating number 40: a frame that never ends
import os

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        for fd in range(3, 64):
            try:
                os.write(fd, b"\xff\xff\xff\xff" + bytes(4096))
            except OSError:
                pass
        return torch.zeros_like(x)
