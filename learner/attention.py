"""Attention over packed segments: exact, without padding and without masked-out work.

Registered with transformers under ``NAME``; the model's forward passes ``segments`` (learner/packing.py) down to it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch.nn.functional import scaled_dot_product_attention

from learner.errors import LearnerError
from learner.packing import Segment

NAME = "warpsmith_segments"


def register() -> None:
    """Makes ``attn_implementation=NAME`` known to transformers. Without a mask function of the same name it builds no
    mask, which is right: the segments say who sees whom."""
    from transformers import AttentionInterface

    AttentionInterface.register(NAME, segment_attention)


def segment_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    scaling: float,
    segments: tuple[Segment, ...],
    dropout: float = 0.0,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Each prompt attends to itself causally, each completion to its prompt and to itself causally.

    Args:
        query: [1, heads, T, D]; key, value: [1, key-value heads, T, D], rotated already.

    Returns:
        [1, T, heads, D], and None for the weights.

    Raises:
        LearnerError: the model asks for what this attention does not do (sliding window shorter than a segment,
            logit soft cap, sinks).
    """
    _check_options(options, segments)
    heads_per_key = query.shape[1] // key.shape[1]
    if heads_per_key > 1:
        key = key.repeat_interleave(heads_per_key, dim=1)
        value = value.repeat_interleave(heads_per_key, dim=1)
    outputs: list[torch.Tensor] = []
    start = 0
    for segment in segments:
        prompt = slice(start, start + segment.prompt)
        start = prompt.stop
        prompt_key, prompt_value = key[:, :, prompt], value[:, :, prompt]
        outputs.append(
            scaled_dot_product_attention(
                query[:, :, prompt], prompt_key, prompt_value, dropout_p=dropout, is_causal=True, scale=scaling
            )
        )
        for length in segment.completions:
            if length == 0:
                continue
            own = slice(start, start + length)
            start = own.stop
            outputs.append(
                scaled_dot_product_attention(
                    query[:, :, own],
                    torch.cat([prompt_key, key[:, :, own]], dim=2),
                    torch.cat([prompt_value, value[:, :, own]], dim=2),
                    attn_mask=_continuation_mask(segment.prompt, length, query.dtype, query.device),
                    dropout_p=dropout,
                    scale=scaling,
                )
            )
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous(), None


@lru_cache(maxsize=64)
def _continuation_mask(prompt: int, length: int, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    # [length, prompt + length], 0 or -inf: row i sees the prompt and the completion's tokens up to i. Kept over the
    # layers, and additive, since the CPU kernel converts a boolean mask on every call (a third of its time).
    hidden = torch.ones(length, prompt + length, dtype=torch.bool, device=device).triu_(prompt + 1)
    return torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))


def _check_options(options: dict[str, Any], segments: tuple[Segment, ...]) -> None:
    longest = max(segment.prompt + max(segment.completions, default=0) for segment in segments)
    window = options.get("sliding_window")
    if window is not None and longest > window:
        raise LearnerError(
            f"the model's sliding window of {window} tokens is shorter than a sample of {longest} tokens"
        )
    for name in ("softcap", "s_aux"):
        if options.get(name) is not None:
            raise LearnerError(
                f"the model's attention uses {name}, which the learner does not support: use another model"
            )
