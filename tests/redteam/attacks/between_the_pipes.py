# expect: runtime_error|rejected|timeout
# Way of cheating number 42: puts a pipe of its own in the wire's place
import os

import torch

read_end, write_end = os.pipe()
for fd in range(3, 32):
    if fd not in (read_end, write_end):
        try:
            os.fstat(fd)
            os.dup2(write_end, fd)
        except OSError:
            pass


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
