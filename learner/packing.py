"""Packs samples into micro batches without padding; the completions of one prompt share its tokens.

A micro batch is one row of tokens, cut into segments. A segment is a prompt followed by completions that all continue
that prompt: each completion attends to the prompt and to itself, never to a sibling or to another segment. So the
prompt of a group of four is computed once instead of four times, and the result is the same (the gradient that the
siblings send into the prompt adds up, as it would over copies).

    row:       [p p p p | a a a | b b]   [q q | c c]
    positions: [0 1 2 3 | 4 5 6 | 4 5]   [0 1 | 2 3]

The last token of a completion predicts nothing, so it is a target but never an input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from learner.errors import LearnerError
from learner.types import Sample


@dataclass(frozen=True, kw_only=True)
class Segment:
    """A prompt and the completions that continue it, as lengths in tokens.

    Example: the first segment above is ``Segment(prompt=4, completions=(3, 2))``.
    """

    prompt: int
    completions: tuple[int, ...] = ()

    @property
    def length(self) -> int:
        return self.prompt + sum(self.completions)


@dataclass(frozen=True, kw_only=True)
class MicroBatch:
    """One forward pass: T input tokens, N predicted (completion) tokens."""

    input_ids: torch.Tensor  # [T] int64
    position_ids: torch.Tensor  # [T] int64
    segments: tuple[Segment, ...]
    predict_at: torch.Tensor  # [N] int64: row whose hidden state predicts the target
    targets: torch.Tensor  # [N] int64
    advantages: torch.Tensor  # [N] float32
    behaviour_logprobs: torch.Tensor  # [N] float32, NaN where unknown
    sample_of: torch.Tensor  # [N] int64: index of the target's sample in the step's list


@dataclass
class _Unit:
    """What becomes a segment: one prompt with some of the samples that share it."""

    prompt: tuple[int, ...]
    members: list[int] = field(default_factory=list)
    tokens: int = 0


def pack(samples: Sequence[Sample], micro_batch_tokens: int) -> list[MicroBatch]:
    """Micro batches of at most ``micro_batch_tokens`` input tokens that hold every sample once, first-fit decreasing.

    The same samples in the same order give the same batches.

    Raises:
        LearnerError: a sample longer than ``micro_batch_tokens``, without a prompt or a completion, or whose
            behaviour logprobs are not one a token.
    """
    for index, sample in enumerate(samples):
        _check(index, sample, micro_batch_tokens)
    bins: list[list[_Unit]] = []
    room: list[int] = []
    for unit in sorted(_units(samples, micro_batch_tokens), key=lambda unit: -unit.tokens):
        slot = next((i for i, free in enumerate(room) if unit.tokens <= free), None)
        if slot is None:
            bins.append([])
            room.append(micro_batch_tokens)
            slot = len(bins) - 1
        bins[slot].append(unit)
        room[slot] -= unit.tokens
    return [_build(units, samples) for units in bins]


def pack_text(token_ids: Sequence[int]) -> MicroBatch:
    """One text as a micro batch whose targets are its tokens 1 .. n-1."""
    ids = torch.tensor(token_ids, dtype=torch.int64)
    rows = torch.arange(len(token_ids) - 1)
    return MicroBatch(
        input_ids=ids[:-1],
        position_ids=rows,
        segments=(Segment(prompt=len(token_ids) - 1),),
        predict_at=rows,
        targets=ids[1:],
        advantages=torch.zeros(len(rows)),
        behaviour_logprobs=torch.full((len(rows),), float("nan")),
        sample_of=torch.zeros(len(rows), dtype=torch.int64),
    )


def without_targets(batch: MicroBatch) -> MicroBatch:
    """The same forward pass with nothing to predict: adds zero to losses and gradients. It keeps a rank that has run
    out of micro batches in step with ranks that have not, since each pass communicates."""
    none = batch.targets[:0]
    return replace(
        batch,
        predict_at=none,
        targets=none,
        sample_of=none,
        advantages=batch.advantages[:0],
        behaviour_logprobs=batch.behaviour_logprobs[:0],
    )


def _check(index: int, sample: Sample, limit: int) -> None:
    length = len(sample.prompt_ids) + len(sample.completion_ids) - 1
    if not sample.prompt_ids or not sample.completion_ids:
        raise LearnerError(f"sample {index} has an empty prompt or completion: leave it out of the batch")
    if length > limit:
        raise LearnerError(
            f"sample {index} has {length} tokens, learner.micro_batch_tokens is {limit}: "
            "raise it, or lower rollout.max_model_len"
        )
    if sample.behaviour_logprobs and len(sample.behaviour_logprobs) != len(sample.completion_ids):
        raise LearnerError(
            f"sample {index} has {len(sample.behaviour_logprobs)} behaviour logprobs for "
            f"{len(sample.completion_ids)} tokens: take both from the same completion"
        )


def _units(samples: Sequence[Sample], limit: int) -> list[_Unit]:
    units: list[_Unit] = []
    last: dict[tuple[int, ...], _Unit] = {}
    for index, sample in enumerate(samples):
        extra = len(sample.completion_ids) - 1
        unit = last.get(sample.prompt_ids)
        if unit is None or unit.tokens + extra > limit:
            unit = last[sample.prompt_ids] = _Unit(sample.prompt_ids, tokens=len(sample.prompt_ids))
            units.append(unit)
        unit.members.append(index)
        unit.tokens += extra
    return units


def _build(units: Sequence[_Unit], samples: Sequence[Sample]) -> MicroBatch:
    # In arrays and not token by token: a GPU would wait for it.
    ids: list[torch.Tensor] = []
    positions: list[torch.Tensor] = []
    segments: list[Segment] = []
    predict_at: list[torch.Tensor] = []
    targets: list[torch.Tensor] = []
    advantages: list[float] = []
    behaviour: list[torch.Tensor] = []
    members: list[int] = []
    counts: list[int] = []
    start = 0
    for unit in units:
        length = len(unit.prompt)
        ids.append(torch.tensor(unit.prompt))
        positions.append(torch.arange(length))
        start += length
        last_of_prompt = start - 1
        for index in unit.members:
            sample = samples[index]
            count = len(sample.completion_ids)
            completion = torch.tensor(sample.completion_ids)
            rows = torch.arange(start - 1, start + count - 1)
            rows[0] = last_of_prompt
            predict_at.append(rows)
            ids.append(completion[:-1])
            positions.append(torch.arange(length, length + count - 1))
            targets.append(completion)
            known = sample.behaviour_logprobs
            behaviour.append(torch.tensor(known) if known else torch.full((count,), float("nan")))
            advantages.append(sample.advantage)
            members.append(index)
            counts.append(count)
            start += count - 1
        segments.append(
            Segment(prompt=length, completions=tuple(len(samples[i].completion_ids) - 1 for i in unit.members))
        )
    repeats = torch.tensor(counts)
    return MicroBatch(
        input_ids=torch.cat(ids),
        position_ids=torch.cat(positions),
        segments=tuple(segments),
        predict_at=torch.cat(predict_at),
        targets=torch.cat(targets),
        advantages=torch.tensor(advantages, dtype=torch.float32).repeat_interleave(repeats),
        behaviour_logprobs=torch.cat(behaviour).to(torch.float32),
        sample_of=torch.tensor(members).repeat_interleave(repeats),
    )
