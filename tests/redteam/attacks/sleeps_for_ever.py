# expect: timeout
# Way of cheating number 51: waits without using the CPU, which no CPU limit ends
import threading

import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        threading.Event().wait()
