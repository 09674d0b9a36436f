# expect: runtime_error
# Way of cheating number 43: changes what was said when its process ends
import atexit
import os

import torch


def last_word():
    for fd in range(3, 64):
        try:
            os.write(fd, b'{"status": "win", "speedup": 9}')
        except OSError:
            pass


atexit.register(last_word)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        raise KeyboardInterrupt
