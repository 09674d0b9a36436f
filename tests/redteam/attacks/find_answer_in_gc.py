# expect: incorrect
# Way of cheating number 27: looks for the reference's answer in the heap
import gc

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        for thing in gc.get_objects():
            if type(thing) is torch.Tensor and thing.shape == x.shape and thing is not x and thing is not b:
                return thing.clone()
        return torch.zeros_like(x)
