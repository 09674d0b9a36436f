# expect: runtime_error|timeout
# Way of cheating number 51: all the memory there is
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        kept = []
        while True:
            kept.append(torch.ones(1 << 26))
