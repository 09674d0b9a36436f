"""What the pools take in and give out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from judge.types import Candidate, Verdict
from learner.types import WeightsVersion
from tasks.types import Task


@dataclass(frozen=True, kw_only=True)
class Failure:
    """What an actor gives back in place of a result: errors travel as values, so no caller's loop is torn down."""

    kind: str
    """Class name of the exception; "Lost" when the actor died or passed its deadline once too often."""
    message: str
    """One line."""
    trace: str = ""
    """Traceback in the actor, for a log."""
    error: Exception | None = None
    """The exception itself where it is one of warpsmith's own."""
    fatal: bool = False
    """The actor can no longer be used: its pool replaces it."""


@dataclass(frozen=True, kw_only=True)
class JudgeJob:
    """One candidate to judge."""

    job_id: str
    """Unique among the jobs in flight: no result is taken twice."""
    task: Task
    candidate: Candidate
    payload: Any = None
    """The caller's own; it comes back with the result and never leaves the process."""


@dataclass(frozen=True, kw_only=True)
class JudgeResult:
    """A job and what became of it."""

    job: JudgeJob
    verdict: Verdict
    """judge_error when no judge could say anything; its message says why."""
    attempts: int = 1
    """How often it was handed to a judge."""
    warnings: tuple[str, ...] = ()
    """One line for each retry."""
    task_error: str = ""
    """The TaskError's line when the task's own code failed; such a job is not tried again."""


@dataclass(frozen=True, kw_only=True)
class SyncReport:
    """New weights in all engines, and how well they agree with the learner."""

    version: WeightsVersion
    learner_logprobs: tuple[float, ...]
    """log p of tokens 1 .. n-1 of the probe text, temperature 1, nats."""
    engine_logprobs: tuple[tuple[float, ...], ...]
    """The same by each engine."""
    difference: float
    """Mean |learner - engine| of the worst engine, nats."""
    seconds: dict[str, float] = field(default_factory=dict)
    """publish, load, probe."""
