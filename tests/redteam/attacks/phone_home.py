# expect: runtime_error
# Way of cheating number 47: network
import socket

import torch

connection = socket.create_connection(("127.0.0.1", 80), 1)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.zeros_like(x)
