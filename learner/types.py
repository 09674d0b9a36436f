"""What the learner takes in and gives out: plain records."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Sample:
    """One completion to learn from.

    Example: ``Sample(prompt_ids=(1, 5), completion_ids=(7, 2), behaviour_logprobs=(-0.1, -0.7), advantage=0.5)``
    """

    prompt_ids: tuple[int, ...]
    completion_ids: tuple[int, ...]  # [T]
    behaviour_logprobs: tuple[float, ...] = ()  # [T], nats, after temperature; empty for supervised samples
    advantage: float = 1.0
    policy_version: int = 0
    """Version of the weights that sampled it."""
    group_id: str = ""
    truncated: bool = False
    """Cut at the longest length allowed, before it ended of itself."""


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """What one update did."""

    policy_version: int
    """Version of the weights after the update."""
    metrics: dict[str, float] = field(default_factory=dict)
    """loss, kl, ratio_mean, clip_share, tis_mean, mismatch_mean, mismatch_max, effective_share, entropy_estimate,
    grad_norm, lr, tokens, ..."""
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class WeightsVersion:
    """A published set of weights: a folder that holds one whole model in Hugging Face form, lm_head stored untied; or
    the same tensors in memory."""

    policy_version: int
    path: str
    """Folder; complete when it exists (published by rename). Empty for weights in memory."""
    sha256: str
    """Of model.safetensors, or of the names and checksums in memory."""
    loan: Any = None
    """learner.lending.Loan of weights in memory; None for a folder."""
