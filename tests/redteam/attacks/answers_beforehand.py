# expect: incorrect
# Way of cheating number 8: a thread computes all the time, so that a call finds an answer ready
import threading

import torch

state = {"inputs": None, "answer": None}


def work():
    while True:
        if state["inputs"] is not None:
            x, b = state["inputs"]
            state["answer"] = torch.relu(x * 2.0 + b) * x + 1.0


threading.Thread(target=work, daemon=True).start()


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        state["inputs"] = (x, b)
        while state["answer"] is None or state["answer"].shape != x.shape:
            pass
        return state["answer"].clone()
