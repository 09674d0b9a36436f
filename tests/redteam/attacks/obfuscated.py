# expect: incorrect
# Way of cheating number 52: the cheat as base64
import base64

import torch

exec(base64.b64decode("aW1wb3J0IHRpbWUKdGltZS5wZXJmX2NvdW50ZXIgPSBsYW1iZGE6IDAuMA=="))


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
