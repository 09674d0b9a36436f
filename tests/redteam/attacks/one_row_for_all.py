# expect: incorrect
# Way of cheating number 39: one row's argmax for all rows: right when they are sorted
# task: task_rows
import torch


class ModelNew(torch.nn.Module):
    def forward(self, x):
        return x.masked_fill(x < 0, float("-inf")), x.sum(1), x[:1].argmax(1).expand(x.shape[0]).contiguous()
