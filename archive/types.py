"""What the archive keeps."""

from __future__ import annotations

import json
import platform
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from judge.types import Verdict
from tasks.types import Task
from warpsmith import __version__


def new_id() -> str:
    return uuid.uuid4().hex


@cache
def software() -> dict[str, str]:
    """Versions of what a candidate is judged with, for Record.software; packages that are not there are left out."""
    found = {"python": platform.python_version(), "warpsmith": __version__}
    for name in ("torch", "triton", "cupy-cuda13x"):
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


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
    model: str = ""
    """Name of the model that wrote it, where there was one."""
    prompt: str = ""
    """What the model was asked."""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    """What this completion cost, in US dollars; None where nothing is billed."""
    software: dict[str, str] = Field(default_factory=dict)
    """Versions of what it was judged with, such as {"torch": "2.13.0"}."""
    extra: dict[str, str] = Field(default_factory=dict)
    """What has no field: profiles, and the columns of an imported dataset."""
    verdict: Verdict
    created_at: datetime = Field(default_factory=lambda: datetime.now(UTC))

    @property
    def score(self) -> float:
        return self.verdict.score


class ArchivedTask(BaseModel):
    """What records say they are for, kept beside them so that an archive can be read without the task's file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    task_id: str
    name: str
    level: int = 0
    """1 single operator, 2 fusion, 3 block; 0 unknown."""
    source: str
    """The reference's Python file."""
    shapes: dict[str, dict[str, Any]] = Field(default_factory=dict)
    """Variant -> the constants that it replaces."""
    extra: dict[str, str] = Field(default_factory=dict)
    """What has no field, such as a functional form of the reference."""

    @classmethod
    def of(cls, task: Task) -> ArchivedTask:
        """A task as the archive keeps it. Constants that JSON lacks are kept as their text."""
        shapes = {variant.name: variant.constants for variant in task.variants}
        plain = json.loads(json.dumps(shapes, default=repr))
        return cls(task_id=task.task_id, name=task.name, level=task.level, source=task.source, shapes=plain)
