# expect: incorrect
# Way of cheating number 9: a thread fills the answer after forward returned
import threading
import time

import torch


def fill(y, x, b):
    time.sleep(0.002)
    y.copy_(torch.relu(x * 2.0 + b) * x + 1.0)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        threading.Thread(target=fill, args=(y, x, b)).start()
        return y
