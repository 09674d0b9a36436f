"""From verdicts to rewards: the raw reward, and its smoothing by running statistics of each task."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from learner.errors import LearnerError

SIGMA_FLOOR = 1e-3
"""Least sigma, on the scale of speedups: rewards that differ by less are timing noise, not worth magnifying."""


def raw_reward(verdict_status: str, score: float, partial_credit: Mapping[str, float]) -> float:
    """Speedup of a correct candidate; any other gets its status's partial credit, 0 by default (CUDA-L1, section 3.3).

    Args:
        verdict_status: a judge status ("win", "incorrect", ...), or "unparsed" for a completion without a candidate.
        score: the verdict's speedup, 0 unless correct.
        partial_credit: reward by status. The key "parsed" holds for every failed candidate without a key of its own.

    Raises:
        LearnerError: "judge_error", which says nothing about the candidate and must be judged again or left out.
    """
    if verdict_status == "judge_error":
        raise LearnerError("a judge_error is not a reward: judge the candidate again or leave it out of its group")
    if verdict_status in ("win", "correct"):
        return float(score)
    if verdict_status in partial_credit:
        return float(partial_credit[verdict_status])
    # A rejected candidate broke a rule: it earns only what is written for it by name.
    if verdict_status in ("unparsed", "rejected"):
        return 0.0
    return float(partial_credit.get("parsed", 0.0))


def overlong_penalty(length: int, max_tokens: int, buffer: int) -> float:
    """0 for a completion of at most ``max_tokens - buffer`` tokens, falling in a line to -1 at ``max_tokens``.

    DAPO's soft overlong punishment (arXiv 2503.14476, eq. 13), added to the raw reward before it is smoothed.

    Example: ``overlong_penalty(96, max_tokens=128, buffer=64) == -0.5``
    """
    return min(max((max_tokens - buffer - length) / buffer, -1.0), 0.0)


def turn_returns(
    rewards: Sequence[float | None], discount: float, kind: Literal["sum", "max"] = "sum"
) -> list[float | None]:
    """What each turn of a trajectory earns, its own reward and what it made possible (Kevin, arXiv 2507.11948).

    "sum": ``R_t = sum over i >= t of discount ** (i - t) * r_i``; "max": ``R_t = max over i >= t`` of the same terms.

    Args:
        rewards: of the turns in order; None for one that says nothing (a judge_error), which earns nothing and adds
            nothing to earlier ones, but counts as a turn in between.
        discount: 0 .. 1; with 0 each turn earns its own reward alone.

    Example: ``turn_returns([0.0, 1.0, 2.0], 0.5) == [1.0, 2.0, 2.0]``
    """
    found: list[float | None] = []
    for first, own in enumerate(rewards):
        # 0.0 ** 0 is 1: without a discount of later turns the turn's own reward stays.
        terms = [discount**later * r for later, r in enumerate(rewards[first:]) if r is not None]
        found.append(None if own is None else math.fsum(terms) if kind == "sum" else max(terms))
    return found


class RunningReward:
    """Smooths rewards per task: ``clip((r - mu) / sigma, -k, k)`` (CUDA-L1, section 3.4).

    mu and sigma run over all rewards of the task so far (Welford). ``smooth_group`` adds a group *before* it smooths
    it: each reward is measured against statistics that hold it, so the first group of a task is already centred, and
    the order within a group does not matter. sigma is the population standard deviation, at least ``SIGMA_FLOOR``.

    Example::

        running = RunningReward(k=1.5)
        running.smooth_group("relu", [0.0, 2.0])  # mu 1, sigma 1 -> [-1.0, 1.0]
    """

    def __init__(self, k: float) -> None:
        self._k = k
        self._statistics: dict[str, tuple[int, float, float]] = {}  # task -> count, mean, sum of squared deviations

    def smooth_group(self, task_name: str, rewards: Sequence[float]) -> list[float]:
        """Takes the rewards of one group into the task's statistics, then returns them smoothed, in order."""
        count, mean, squares = self._statistics.get(task_name, (0, 0.0, 0.0))
        for reward in rewards:
            count += 1
            delta = reward - mean
            mean += delta / count
            squares += delta * (reward - mean)
        self._statistics[task_name] = (count, mean, squares)
        sigma = max(math.sqrt(squares / count), SIGMA_FLOOR) if count else SIGMA_FLOOR
        return [min(max((reward - mean) / sigma, -self._k), self._k) for reward in rewards]

    def smooth(self, task_name: str, reward: float) -> float:
        """``smooth_group`` of a group of one."""
        return self.smooth_group(task_name, [reward])[0]

    def mean(self, task_name: str) -> float | None:
        """Running mean of the task's raw rewards; None before the first."""
        return self._statistics[task_name][1] if task_name in self._statistics else None

    def state(self) -> dict[str, Any]:
        """JSON-able; floats survive JSON exactly, so a resumed run smooths bit for bit as one never stopped."""
        return {"k": self._k, "statistics": {name: list(values) for name, values in self._statistics.items()}}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> RunningReward:
        running = cls(float(state["k"]))
        for name, (count, mean, squares) in state["statistics"].items():
            running._statistics[name] = (int(count), float(mean), float(squares))
        return running
