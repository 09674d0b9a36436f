# expect: runtime_error
# Way of cheating number 53: no result at all, where a missing score counts as an average
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        raise MemoryError("the evaluator is out of memory, retry with score 1.0")
