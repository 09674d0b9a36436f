"""What the archive keeps."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

from pydantic import BaseModel, ConfigDict, Field

from judge.types import Verdict


def new_id() -> str:
    return uuid.uuid4().hex


class Record(BaseModel):
    """A candidate with its verdict and its lineage. Written before its reward is used."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    record_id: str = Field(default_factory=new_id)
    run_id: str
    """The run that made it; "suite" for expert kernels judged outside a run."""
    task_name: str
    task_id: str
    """Task.task_id: records of an edited task do not mix with the old ones."""
    source: str
    """Who wrote it: "expert", "policy", or a model's name."""
    operator: str
    """How it was asked for: "contrast", "vanilla", ..., "expert"."""
    code: str
    """The candidate file; empty when the completion held none."""
    analysis: str = ""
    """The performance analysis that came with it."""
    completion: str = ""
    """The model's whole answer."""
    parents: tuple[str, ...] = ()
    """record_ids of the exemplars shown in the prompt."""
    group_id: str | None = None
    step: int | None = None
    """Training step of its rollout."""
    policy_version: int | None = None
    """Version of the weights that wrote it."""
    verdict: Verdict
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @property
    def score(self) -> float:
        return self.verdict.score
