# expect: rejected|incorrect
# Way of cheating number 41: a second reply at once, for the call to come
import gc

import torch

from judge import wire

runner = next(thing for thing in gc.get_objects() if type(thing).__name__ == "Runner")
original = type(runner).call


def call(self, request):
    called = original(self, request)
    wire.send(self.sock, called)
    return called


type(runner).call = call


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.relu(x * 2.0 + b) * x + 1.0
