"""What an audit says as a whole: published and measured speedups side by side, and what did not hold."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from judge.types import Status, Verdict

FAST = (0.0, 1.0, 1.1, 1.5, 2.0, 5.0)
"""The p of fast_p: the share of entries that are correct and more than p times as fast (KernelBench)."""


class AuditResult(BaseModel):
    """One entry and what became of it: a line of the results file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    entry_id: str
    name: str
    task_name: str = ""
    candidate_id: str = ""
    published: dict[str, float] = Field(default_factory=dict)
    """Speedups, by kind of baseline."""
    published_correct: bool | None = None
    verdict: Verdict | None = None
    """None when there was nothing to judge: ``reason`` says why."""
    reason: str = ""
    settings_id: str = ""
    """Of the judge's settings: results of different ones are not mixed."""

    @property
    def outcome(self) -> str:
        """Its status; "not judged" without a verdict."""
        return str(self.verdict.status) if self.verdict else "not judged"

    @property
    def published_speedup(self) -> float | None:
        """Against the baseline that the judge found the best, where that was published; else against eager."""
        kind = (self.verdict.best_baseline if self.verdict else None) or "eager"
        return self.published.get(kind, self.published.get("eager"))


class Spread(BaseModel):
    """Of some speedups; None of none."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int
    geomean: float | None = None
    median: float | None = None
    mean: float | None = None


class AuditSummary(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    entries: int
    judged: int
    outcomes: dict[str, int]
    """How many of each status, and "not judged"."""
    measured: Spread
    """Of the correct ones."""
    published: Spread
    """Of all that published a speedup and were judged."""
    published_of_correct: Spread
    """Of the correct ones: what ``measured`` compares with."""
    fast: dict[str, float]
    """fast_p of the measured speedups, over all that were judged."""
    fast_proved: dict[str, float]
    """The same with the lower ends of the 99% intervals."""
    fast_published: dict[str, float]
    """The same as published, for the judged ones; what was published as wrong counts as such."""
    claims_that_failed: int
    """Published as faster than the reference, and found to be neither win nor correct."""
    reasons: dict[str, dict[str, int]]
    """By status: the messages of what is not correct, and how often each, most frequent first."""


def summarise(results: Sequence[AuditResult]) -> AuditSummary:
    """The summary of results, in any order."""
    judged = [result for result in results if result.verdict and result.verdict.status is not Status.JUDGE_ERROR]
    correct = [result for result in judged if result.verdict and result.verdict.is_correct]
    reasons: dict[str, Counter[str]] = {}
    for result in results:
        if not (result.verdict and result.verdict.is_correct):
            text = result.verdict.message if result.verdict else result.reason
            reasons.setdefault(result.outcome, Counter())[text] += 1
    claims = [_claim(result) for result in judged]
    return AuditSummary(
        entries=len(results),
        judged=len(judged),
        outcomes=dict(Counter(result.outcome for result in results).most_common()),
        measured=spread([result.verdict.score for result in correct if result.verdict]),
        published=spread([claim for claim in claims if claim]),
        published_of_correct=spread([claim for result in correct if (claim := result.published_speedup)]),
        fast=fast_p([result.verdict.score if result.verdict else 0.0 for result in judged]),
        fast_proved=fast_p([_proved(result.verdict) for result in judged]),
        fast_published=fast_p(claims),
        claims_that_failed=sum(
            claim > 1 and not (result.verdict and result.verdict.is_correct)
            for claim, result in zip(claims, judged, strict=True)
        ),
        reasons={status: dict(counted.most_common()) for status, counted in reasons.items()},
    )


def spread(speedups: Sequence[float]) -> Spread:
    """Geometric mean, median and mean of positive numbers."""
    if not speedups:
        return Spread(count=0)
    return Spread(
        count=len(speedups),
        geomean=math.exp(statistics.fmean(map(math.log, speedups))),
        median=statistics.median(speedups),
        mean=statistics.fmean(speedups),
    )


def fast_p(scores: Sequence[float]) -> dict[str, float]:
    """For each p of FAST the share of scores above it; a wrong candidate's is 0, so fast_0 is the correct share."""
    return {f"{p:g}": sum(score > p for score in scores) / len(scores) if scores else 0.0 for p in FAST}


def _claim(result: AuditResult) -> float:
    return 0.0 if result.published_correct is False else (result.published_speedup or 0.0)


def _proved(verdict: Verdict | None) -> float:
    return float(verdict.speedup_low or 0.0) if verdict and verdict.is_correct else 0.0
