# expect: timeout
# Way of cheating number 51: never finishes importing
import torch

while True:
    pass


class ModelNew(torch.nn.Module):
    pass
