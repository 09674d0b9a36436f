"""What the judge is given and what it says."""

from __future__ import annotations

import hashlib
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field


class Status(StrEnum):
    """The closed set of outcomes."""

    WIN = "win"
    """Correct, and the lower bound of the 99% interval of its speedup is above 1.01."""
    CORRECT = "correct"
    """Correct, not (provably) faster."""
    INCORRECT = "incorrect"
    COMPILE_ERROR = "compile_error"
    RUNTIME_ERROR = "runtime_error"
    TIMEOUT = "timeout"
    REJECTED = "rejected"
    """It broke a rule: precision, speed of light, a recheck that disagreed."""
    JUDGE_ERROR = "judge_error"
    """The judge's own failure: retried, never a reward."""


class Candidate(BaseModel):
    """Source text offered for a task: a Python file that defines ``ModelNew``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    code: str

    @property
    def candidate_id(self) -> str:
        """First 16 hex digits of the SHA-256 of the code."""
        return hashlib.sha256(self.code.encode()).hexdigest()[:16]


class Baselines(BaseModel):
    """Median milliseconds of one call, by kind of baseline; None where it was not measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    eager: float | None = None
    compile: float | None = None
    reduce_overhead: float | None = None
    cuda_graph: float | None = None


class Verdict(BaseModel):
    """What the judge says of a candidate. ``verdict.model_dump_json()`` is the JSON of the command line."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: Status
    speedup: float | None = None
    """Best baseline's time / candidate's time, both by the judge's clock; None unless win or correct."""
    speedup_low: float | None = None
    """Lower end of the two-sided 99% interval."""
    speedup_high: float | None = None
    candidate_ms: float | None = None
    """Median milliseconds of one call."""
    baselines: Baselines = Baselines()
    best_baseline: str | None = None
    """Which baseline the speedup is against."""
    timed_as: str | None = None
    """"calls" one by one (CPU); on a GPU "graph" (all calls of a batch captured as one) or "launches"."""
    max_error: float | None = None
    """Largest scaled error against the float64 truth that was seen (judge/verify.py has the formula)."""
    tolerance: float | None = None
    """What was allowed where max_error was seen."""
    phase_seconds: dict[str, float] = Field(default_factory=dict)
    """Wall seconds by phase: compile, load, verify, time, recheck."""
    flags: tuple[str, ...] = ()
    """Marks such as "no custom kernel"."""
    sandbox: tuple[str, ...] = ()
    """Isolation layers that were active, such as "landlock", "seccomp", "netns"."""
    hardware: dict[str, str] = Field(default_factory=dict)
    message: str = ""
    """One line; for failures what went wrong and where, usable as feedback to a model."""

    @property
    def is_correct(self) -> bool:
        return self.status in (Status.WIN, Status.CORRECT)

    @property
    def score(self) -> float:
        """The speedup of a correct candidate, 0 for any other: the raw reward (CUDA-L1, section 3.3)."""
        return float(self.speedup or 0.0) if self.is_correct else 0.0
