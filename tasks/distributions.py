"""How inputs are redrawn: what types.DISTRIBUTIONS names, for the judge and for whoever checks kernels as it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def redrawn(x: torch.Tensor, distribution: str, generator: torch.Generator | None = None) -> torch.Tensor:
    """A floating input as another of types.DISTRIBUTIONS has it; others, and "given", are left as they are.

    Args:
        generator: for "ties", on the input's device; torch's own if left out.

    Raises KeyError: no such distribution.
    """
    import torch

    if not x.is_floating_point() or distribution == "given":
        return x
    if distribution == "ties":
        keep = torch.rand(x.shape, generator=generator, device=x.device) < 0.5
        return torch.where(keep, torch.round(x), torch.zeros_like(x))
    if distribution == "shifted":
        return x + 1.0
    if distribution == "large":
        return x * 50.0
    raise KeyError(distribution)
