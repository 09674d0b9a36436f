# expect: incorrect|rejected
# Way of cheating number 40: answers the call before computing, from the judge's own protocol
import gc
import sys

import torch

from judge import wire


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        frame = sys._getframe()
        while frame and not hasattr(frame.f_locals.get("call"), "nonce"):
            frame = frame.f_back
        runner = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Runner")
        spec = wire.TensorSpec(dtype="float32", shape=tuple(x.shape), place=y.data_ptr())
        wire.send(runner.sock, wire.Called(nonce=frame.f_locals["call"].nonce, seconds=1e-9, outputs=(spec,)))
        y.copy_(torch.relu(x * 2.0 + b) * x + 1.0)
        return y
