"""What the service is asked and what it answers, as JSON."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from archive.types import Record
from serving.job_types import Job
from serving.optimizer import OptimizeResult
from serving.settings import ServingSettings

_Body = TypeVar("_Body", bound=BaseModel)


class RequestError(ValueError):
    """The request cannot be answered; `status` is the HTTP status, the text one line."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(" ".join(text.split()))
        self.status = status


class OptimizeRequest(BaseModel):
    """Body of POST /v1/optimize: a task by its source or by its name in the suite, and how much may be spent."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_source: str | None = None
    """Text of a task file in KernelBench's form."""
    task_name: str | None = None
    """Name of a task of the bundled suite."""
    max_candidates: int | None = Field(None, ge=1)
    """Completions to ask for; serving.max_candidates if left out, and at most that."""
    budget_seconds: float | None = Field(None, gt=0)
    """Counted from when the work begins; serving.budget_seconds if left out, and at most that."""

    @model_validator(mode="after")
    def _one_task(self) -> OptimizeRequest:
        if (self.task_source is None) == (self.task_name is None):
            raise ValueError("give either task_source or task_name")
        return self


class JudgeRequest(BaseModel):
    """Body of POST /v1/judge: a task as for /v1/optimize, and the candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_source: str | None = None
    task_name: str | None = None
    code: str
    """A Python file that defines ModelNew; it runs in the judge's sandbox only."""

    @model_validator(mode="after")
    def _one_task(self) -> JudgeRequest:
        if (self.task_source is None) == (self.task_name is None):
            raise ValueError("give either task_source or task_name")
        return self


class JobReply(BaseModel):
    """A job as the service shows it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    state: str
    """"queued", "running", "done", "failed" or "cancelled"."""
    task_name: str
    created_at: float
    """Seconds since 1970."""
    started_at: float | None = None
    finished_at: float | None = None
    attempts: int = 0
    """Above 1 when a worker died and the search was taken up again."""
    asked: int = 0
    """Completions taken from the policy so far."""
    max_candidates: int | None = None
    budget_seconds: float | None = None
    cancel_requested: bool = False
    result: OptimizeReply | None = None
    """When done."""
    error: str | None = None
    """One line, when failed."""


class OptimizeReply(BaseModel):
    """The answer: a kernel only when it was verified to be right and, twice, to be faster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    status: str
    """"win", or "none" when no candidate was verified faster."""
    task_name: str
    code: str | None = None
    """The candidate file."""
    speedup: float | None = None
    speedup_low: float | None = None
    """Lower end of the two-sided 99% interval."""
    speedup_high: float | None = None
    best_baseline: str | None = None
    record_id: str | None = None
    source: str | None = None
    """Who wrote it: "expert", "policy", ..."""
    asked: int
    """Completions taken from the policy for this request."""
    judged: int
    statuses: dict[str, int]
    seconds: float
    message: str


def parse_request(body: bytes, settings: ServingSettings) -> OptimizeRequest:
    """The request with its limits filled in. Raises RequestError: 400 not JSON, 422 not what is asked for."""
    request = parse_body(OptimizeRequest, body)
    limits = {"max_candidates": settings.max_candidates, "budget_seconds": settings.budget_seconds}
    for key, most in limits.items():
        wanted = getattr(request, key)
        if wanted is not None and wanted > most:
            raise RequestError(422, f"{key}: at most {most:g} on this server, got {wanted:g}")
    filled = {key: getattr(request, key) or most for key, most in limits.items()}
    return request.model_copy(update=filled)


def parse_body(kind: type[_Body], body: bytes) -> _Body:
    """The body as a model. Raises RequestError: 400 not JSON, 422 not what is asked for."""
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        raise _request_error(error.errors(include_url=False)[0], kind) from None


def job_reply(job: Job) -> JobReply:
    """A job as the service shows it."""
    return JobReply(
        id=job.job_id,
        state=str(job.state),
        task_name=job.task_name,
        created_at=job.created_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        attempts=job.attempts,
        asked=job.asked,
        max_candidates=job.request.get("max_candidates"),
        budget_seconds=job.request.get("budget_seconds"),
        cancel_requested=job.cancel_requested,
        result=None if job.result is None else OptimizeReply.model_validate(job.result),
        error=job.error or None,
    )


def _request_error(first: Any, kind: type[BaseModel]) -> RequestError:
    if first["type"] == "json_invalid":
        return RequestError(400, f"the body is not JSON: {first['ctx']['error']}")
    where = ".".join(str(part) for part in first["loc"])
    known = ", ".join(kind.model_fields)
    note = f"; known are {known}" if first["type"] == "extra_forbidden" else ""
    text = first["msg"].removeprefix("Value error, ")
    return RequestError(422, f"{where}: {text}{note}" if where else f"{text}{note}")


def reply_of(result: OptimizeResult) -> OptimizeReply:
    """The answer that a search's result makes."""
    spent = {
        "task_name": result.task.name,
        "asked": result.asked,
        "judged": result.judged,
        "statuses": result.statuses,
        "seconds": round(result.seconds, 2),
    }
    if result.best is None:
        return OptimizeReply(status="none", message=_nothing(result.best_correct), **spent)
    verdict = result.best.verdict
    return OptimizeReply(
        status="win",
        code=result.best.code,
        speedup=verdict.speedup,
        speedup_low=verdict.speedup_low,
        speedup_high=verdict.speedup_high,
        best_baseline=verdict.best_baseline,
        record_id=result.best.record_id,
        source=result.best.source,
        message=verdict.message,
        **spent,
    )


def _nothing(best_correct: Record | None) -> str:
    if best_correct is None:
        return "no candidate was verified faster, and none was correct"
    return f"no candidate was verified faster; the best correct one: {best_correct.score:.2f}x"
