# expect: incorrect
# Way of cheating number 9: fills the answer from a timer's signal handler
import signal

import torch

pending = []


def fill(*_):
    while pending:
        y, x, b = pending.pop()
        y.copy_(torch.relu(x * 2.0 + b) * x + 1.0)


signal.signal(signal.SIGALRM, fill)


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        y = torch.empty_like(x)
        pending.append((y, x.clone(), b.clone()))
        signal.setitimer(signal.ITIMER_REAL, 0.001)
        return y
