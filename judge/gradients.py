"""Tasks that say BACKWARD = True: a call is forward, then the gradients of all floating inputs.

Outputs of such a call are forward's own, then one gradient for each floating input in order. What flows back (one
tensor for each floating output) is drawn by the reference from the secret seed and is an argument of the call, so that
no special gradient, such as all ones, can be built upon.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch


class GradientError(Exception):
    """Forward cannot be differentiated, or returns what the gradients do not fit."""


class WithGradients:
    """A model whose call takes (inputs, what flows back) and gives outputs and gradients."""

    def __init__(self, model: Any, outputs_of: Callable[[Any], list[torch.Tensor]]) -> None:
        """``outputs_of`` makes a list of tensors of what forward returns, or raises."""
        self._model, self._outputs_of = model, outputs_of

    def __call__(self, inputs: Sequence[Any], upstream: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Raises GradientError."""
        leaves: list[torch.Tensor] = []
        with torch.enable_grad():
            outputs = self._outputs_of(self._model(*_leaves_of(tuple(inputs), leaves)))
            floating = [output for output in outputs if output.is_floating_point()]
            if [tuple(o.shape) for o in floating] != [tuple(g.shape) for g in upstream]:
                raise GradientError(
                    f"floating outputs have shapes {[list(o.shape) for o in floating]}, "
                    f"should be {[list(g.shape) for g in upstream]}"
                )
            through = [(o, g.to(o.dtype)) for o, g in zip(floating, upstream, strict=True) if o.requires_grad]
            if not through:
                raise GradientError(
                    "the task asks for gradients (BACKWARD) and forward's outputs have none: "
                    "put the kernels into a torch.autograd.Function"
                )
            found = torch.autograd.grad(
                [output for output, _ in through], leaves, [gradient for _, gradient in through], allow_unused=True
            )
        gradients = [torch.zeros_like(x) if g is None else g for x, g in zip(leaves, found, strict=True)]
        return [one.detach().contiguous() for one in (*outputs, *gradients)]


def _leaves_of(value: Any, leaves: list[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        if not value.is_floating_point():
            return value
        leaves.append(value.detach().requires_grad_())
        return leaves[-1]
    if isinstance(value, list | tuple):
        return type(value)(_leaves_of(item, leaves) for item in value)
    return value


def draw_upstream(outputs: Sequence[torch.Tensor], generator: torch.Generator) -> tuple[torch.Tensor, ...]:
    """Normal values for each floating output."""
    return tuple(
        torch.randn(one.shape, generator=generator, device=generator.device).to(one.dtype)
        for one in outputs
        if one.is_floating_point()
    )
