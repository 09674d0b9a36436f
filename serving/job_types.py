"""A job: one search that somebody asked for over HTTP, and what has happened to it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from warpsmith import WarpsmithError


class JobState(StrEnum):
    """The closed set of states; the last three are final."""

    QUEUED = "queued"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


class QueueFullError(WarpsmithError):
    """As many jobs wait as may."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A row of the table of jobs."""

    job_id: str
    owner: str
    """Id of the API key that asked for it; empty where keys are not asked for."""
    state: JobState
    request: dict[str, Any]
    """serving.messages.OptimizeRequest, its limits filled in."""
    task_name: str
    created_at: float
    """Seconds since 1970, as all times here."""
    started_at: float | None = None
    """When a worker first took it."""
    finished_at: float | None = None
    attempts: int = 0
    """Workers that took it; more than one when a worker died."""
    asked: int = 0
    """Completions taken from the policy so far, by all attempts."""
    spent_seconds: float = 0.0
    """Time worked on it, by all attempts."""
    cancel_requested: bool = False
    result: dict[str, Any] | None = None
    """serving.messages.OptimizeReply, when done."""
    error: str = ""
    """One line, when failed."""
    error_status: int = 0
    """The HTTP status that the error would have had: 422 the request's fault, 500 ours."""


@dataclass(frozen=True, kw_only=True)
class JobEvent:
    """Something that happened to a job; what the event stream sends."""

    sequence: int
    """Grows within the whole database: a client that comes back names the last one that it saw."""
    job_id: str
    kind: str
    """A state that the job has come to, or "verdict"."""
    data: dict[str, Any]
