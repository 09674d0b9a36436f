# expect: incorrect
# Way of cheating number 10: a tensor subclass that computes when looked at
import torch


class Tensor(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class ModelNew(torch.nn.Module):
    def forward(self, x, b):
        return torch.empty_like(x).as_subclass(Tensor)
