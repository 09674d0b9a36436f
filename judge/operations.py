"""How many floating-point operations the matrix products of a model need, by watching torch's functions as it calls
them. (torch.utils.flop_counter counts more kinds, and loads 800 modules for it, in each process anew.)"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_PRODUCTS = {
    torch.matmul,
    torch.mm,
    torch.bmm,
    torch.mv,
    torch.Tensor.matmul,
    torch.Tensor.__matmul__,
    torch.Tensor.mm,
    torch.Tensor.bmm,
    torch.Tensor.mv,
    torch.nn.functional.linear,
}
_CONVOLUTIONS = {torch.conv1d, torch.conv2d, torch.conv3d}


class OperationCounter(TorchFunctionMode):
    """Counts products, convolutions and attention; what it does not know counts nothing: a lower bound."""

    def __init__(self) -> None:
        super().__init__()
        self.total = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunction():
            if func in _PRODUCTS:
                self.total += 2 * result.numel() * args[0].shape[-1]
            elif func in _CONVOLUTIONS and len(args) > 1:
                self.total += 2 * result.numel() * math.prod(args[1].shape[1:])
            elif func is torch.nn.functional.scaled_dot_product_attention and len(args) > 2:
                queries, keys = args[0], args[1]
                pairs = math.prod(queries.shape[:-1]) * keys.shape[-2]
                self.total += 2 * pairs * (queries.shape[-1] + args[2].shape[-1])
        return result
