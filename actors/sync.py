"""New weights from the learner into every engine, and the proof that they arrived."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Protocol

from actors.errors import ActorError
from actors.types import SyncReport
from learner.types import WeightsVersion


class _Learner(Protocol):
    def publish(self, folder: Path) -> WeightsVersion: ...
    def lend(self) -> WeightsVersion: ...
    def probe(self, token_ids: Sequence[int]) -> Sequence[float]: ...


class _Engines(Protocol):
    def load_weights(self, version: WeightsVersion) -> None: ...
    def probe(self, token_ids: Sequence[int]) -> Sequence[Sequence[float]]: ...


def sync_weights(
    learner: _Learner,
    rollout: _Engines,
    folder: Path,
    probe_ids: Sequence[int],
    *,
    max_jump: float,
    channel: Literal["file", "memory"] = "file",
) -> SyncReport:
    """Publishes the learner's weights, loads them into all engines, compares the logprobs of a fixed text.

    Args:
        folder: versions are published below it.
        probe_ids: tokens of the fixed text, at least two.
        channel: RolloutSettings.channel; "memory" writes no version.
        max_jump: largest mean |delta logprob| in nats (RolloutSettings.max_probe_difference).

    Raises:
        ActorError: an engine and the learner disagree by more: stale, partial or corrupted weights.
    """
    clock = [time.monotonic()]
    version = learner.lend() if channel == "memory" else learner.publish(folder)
    clock.append(time.monotonic())
    rollout.load_weights(version)
    clock.append(time.monotonic())
    truth = tuple(learner.probe(probe_ids))
    engines = tuple(tuple(values) for values in rollout.probe(probe_ids))
    clock.append(time.monotonic())
    difference = max(mean_difference(truth, values) for values in engines)
    # Not `> max_jump`: a NaN is a disagreement too.
    if not difference <= max_jump:
        raise ActorError(
            f"weights in the engine and the learner disagree: mean |delta logprob| {difference:.3g} > {max_jump:g} "
            f"after version {version.policy_version}; start again from the last checkpoint, or raise "
            "rollout.max_probe_difference if the two are known to differ by that much"
        )
    seconds = {
        name: after - before
        for name, before, after in zip(("publish", "load", "probe"), clock[:-1], clock[1:], strict=True)
    }
    return SyncReport(
        version=version, learner_logprobs=truth, engine_logprobs=engines, difference=difference, seconds=seconds
    )


def mean_difference(one: Sequence[float], other: Sequence[float]) -> float:
    """Mean |a - b|, nats; NaN when any is. Raises ValueError for unequal lengths."""
    return sum(abs(a - b) for a, b in zip(one, other, strict=True)) / len(one)
