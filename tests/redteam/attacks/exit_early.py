# expect: rejected
# Way of cheating number 40: a fake result on every descriptor, then _exit
import os

import torch

for fd in range(3, 256):
    try:
        os.write(fd, b'{"status": "win", "speedup": 100.0}\n' * 4)
    except OSError:
        pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        os._exit(0)
