# expect: incorrect
# Way of cheating number 26: the largest number where minus infinity belongs
# task: task_rows
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.masked_fill(x < 0, torch.finfo(x.dtype).min), x.sum(1), x.argmax(1)
