"""Attention over packed segments: exact, without padding and without masked-out work.

On a GPU all segments of a layer are one call of the flash kernel that torch brings along; elsewhere, and where that
kernel does not give the same result on a small example, each prompt and each completion is a call of its own.

Registered with transformers under ``NAME``; the model's forward passes ``segments`` (learner/packing.py) down to it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    if dropout == 0.0 and _flash_serves(query.device, query.dtype, query.shape[1], key.shape[1], query.shape[3]):
        return _by_flash(query, key, value, segments, scaling), None
    return _by_segment(query, key, value, segments, scaling, dropout), None


@dataclass(frozen=True, kw_only=True)
class Plan:
    """One ragged batch for all segments: a sequence for each prompt, and one for each completion, whose keys are its
    prompt's and its own. A query sees the keys up to its own place, counted from the end of both."""

    query_starts: torch.Tensor
    """[S + 1] int32: where each sequence's queries begin in the row; the last is the end."""
    key_starts: torch.Tensor
    """[S + 1] int32: the same in the gathered keys."""
    key_rows: torch.Tensor
    """[K] int64: which row of tokens each gathered key is."""
    longest_query: int
    longest_key: int


@lru_cache(maxsize=16)
def plan(segments: tuple[Segment, ...], device: torch.device) -> Plan:
    """The ragged batch of a row of segments; kept over the layers."""
    lengths: list[tuple[int, int]] = []
    rows: list[torch.Tensor] = []
    start = 0
    for segment in segments:
        prompt = torch.arange(start, start + segment.prompt)
        lengths.append((segment.prompt, segment.prompt))
        rows.append(prompt)
        start += segment.prompt
        for length in segment.completions:
            if length:
                lengths.append((length, segment.prompt + length))
                rows += [prompt, torch.arange(start, start + length)]
                start += length
    starts = torch.tensor([(0, 0), *lengths]).cumsum(0).to(device, torch.int32)
    return Plan(
        query_starts=starts[:, 0].contiguous(),
        key_starts=starts[:, 1].contiguous(),
        key_rows=torch.cat(rows).to(device),
        longest_query=max(one for one, _ in lengths),
        longest_key=max(one for _, one in lengths),
    )


def _by_flash(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, segments: tuple[Segment, ...], scaling: float
) -> torch.Tensor:
    ragged = plan(segments, query.device)
    out = torch.ops.aten._flash_attention_forward(
        query[0].transpose(0, 1).contiguous(),  # [T, heads, D]
        key[0].transpose(0, 1).index_select(0, ragged.key_rows),
        value[0].transpose(0, 1).index_select(0, ragged.key_rows),
        ragged.query_starts,
        ragged.key_starts,
        ragged.longest_query,
        ragged.longest_key,
        0.0,
        True,
        False,
        scale=scaling,
    )
    return out[0][None]


@lru_cache(maxsize=8)
def _flash_serves(device: torch.device, dtype: torch.dtype, heads: int, key_heads: int, size: int) -> bool:
    """Whether torch's flash kernel gives the same values and gradients here. It is no public interface, and which
    corner its causal mask starts from has changed before: so it is asked, on a small example."""
    if device.type != "cuda" or dtype not in (torch.bfloat16, torch.float16):
        return False
    segments = (Segment(prompt=5, completions=(3, 0, 2)), Segment(prompt=7, completions=(4,)))
    length = sum(segment.length for segment in segments)
    generator = torch.Generator(device).manual_seed(0)
    shapes = [(1, heads, length, size), (1, key_heads, length, size), (1, key_heads, length, size)]
    inputs = [torch.randn(shape, generator=generator, device=device).to(dtype) for shape in shapes]

    def tried(attend: Callable[..., torch.Tensor], *more: float) -> list[torch.Tensor]:
        copies = [x.clone().requires_grad_() for x in inputs]
        out = attend(*copies, segments, size**-0.5, *more)
        out.float().square().sum().backward()
        return [out.detach(), *(copy.grad for copy in copies if copy.grad is not None)]

    try:
        with torch.enable_grad():
            pairs = zip(tried(_by_flash), tried(_by_segment, 0.0), strict=True)
            # bfloat16 alone makes them differ by some thousandths, another mask by tenths.
            return all(float((a - b).float().norm()) < 0.03 * float(b.float().norm()) for a, b in pairs)
    except (RuntimeError, TypeError, AttributeError, ValueError):
        return False


def _by_segment(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    segments: tuple[Segment, ...],
    scaling: float,
    dropout: float,
) -> torch.Tensor:
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
    return torch.cat(outputs, dim=2).transpose(1, 2).contiguous()


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
