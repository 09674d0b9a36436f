# expect: rejected
# Way of cheating number 44: a pickle that runs code where it is loaded
import os
import pickle

import torch


class Bomb:
    def __reduce__(self):
        return (os.system, ("touch /tmp/warpsmith-was-here",))


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        payload = pickle.dumps(Bomb())
        for fd in range(3, 64):
            try:
                os.write(fd, len(payload).to_bytes(4, "big") + payload)
            except OSError:
                pass
        return torch.zeros_like(x)
