"""What a run folder says, read without trusting it: half-finished runs, torn lines and odd values are normal here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from archive.types import Record
from cluster.errors import ConfigError
from cluster.tracking import METRICS, read_metrics
from judge.types import Status

VERIFIED = frozenset({Status.WIN, Status.CORRECT, Status.INCORRECT})
"""Statuses of candidates that compiled, loaded and ran."""


@dataclass(frozen=True, kw_only=True)
class RunData:
    """One run folder, as found."""

    path: Path
    config: dict[str, Any]
    """config.json; empty when it is missing or unreadable."""
    state: dict[str, Any]
    """state.json, likewise."""
    lines: tuple[dict[str, Any], ...]
    """metrics.jsonl in order, the last one of each (stage, step) only."""
    records: tuple[Record, ...]
    """The archive, oldest first."""
    unreadable_lines: int = 0

    def setting(self, dotted: str, default: Any = None) -> Any:
        """A value of config.json by its dotted key."""
        place: Any = self.config
        for part in dotted.split("."):
            if not isinstance(place, dict) or part not in place:
                return default
            place = place[part]
        return place

    def lines_of(self, stage: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("stage") == stage]


@dataclass(frozen=True, kw_only=True)
class TaskBest:
    """The best kernels of one task."""

    task_name: str
    task_id: str
    best: Record | None
    """Of anyone; None when nothing correct was written."""
    policy_best: Record | None
    candidates: int


@dataclass(frozen=True, kw_only=True)
class PolicyShare:
    """What the policy itself wrote in one step; each number is at most the one before it, copies aside."""

    step: int | None
    """None for all steps together."""
    completions: int
    parsed: int
    compiled: int
    """... and loaded."""
    correct: int
    copies: int
    """Of the correct ones: code that an earlier record of the task has already."""
    wins: int
    """Without copies."""


def load_run(run_dir: Path) -> RunData:
    """Read a run folder. Raises ConfigError (no such folder) or ArchiveError (the archive cannot be read)."""
    from archive.store import Archive

    path = Path(run_dir)
    if not path.is_dir():
        raise ConfigError(f"{path}: no such run folder; `warpsmith train` makes one under runs/")
    lines, unreadable = _read_metrics(path / METRICS)
    records: tuple[Record, ...] = ()
    if (path / "archive.db").is_file():  # opening a missing one would create it
        archive = Archive(str(path / "archive.db"))
        try:
            records = tuple(archive.records())
        finally:
            archive.close()
    return RunData(
        path=path,
        config=_read_object(path / "config.json"),
        state=_read_object(path / "state.json"),
        lines=lines,
        records=records,
        unreadable_lines=unreadable,
    )


def number(value: Any) -> float | None:
    """A finite number, or None for anything else: NaN and strings are not drawn."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if math.isfinite(value) else None


def numbers(value: Any) -> dict[str, float]:
    """The finite numbers of a mapping; empty for anything else."""
    if not isinstance(value, dict):
        return {}
    return {str(key): found for key, item in value.items() if (found := number(item)) is not None}


def is_copy(record: Record) -> bool:
    """True when an earlier record of the task has the same code: its first writer has the credit."""
    return "copy" in record.verdict.flags


def is_unparsed(record: Record) -> bool:
    return not record.code or "unparsed" in record.verdict.flags


def best_record(records: Iterable[Record]) -> Record | None:
    """As Archive.best: the highest lower bound among wins, else the highest speedup among correct; copies left out."""
    original = [record for record in records if record.verdict.is_correct and not is_copy(record)]
    wins = [record for record in original if record.verdict.status is Status.WIN]
    if wins:
        return max(wins, key=lambda record: record.verdict.speedup_low or 0.0)
    return max(original, key=lambda record: record.score, default=None)


def best_by_task(records: Sequence[Record]) -> list[TaskBest]:
    """One entry a task, by name; a task whose text changed counts as another."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.task_name, record.task_id), []).append(record)
    return [
        TaskBest(
            task_name=name,
            task_id=task_id,
            best=best_record(members),
            policy_best=best_record(record for record in members if record.source == "policy"),
            candidates=len(members),
        )
        for (name, task_id), members in sorted(groups.items())
    ]


def policy_shares(records: Sequence[Record]) -> list[PolicyShare]:
    """The policy's share by step, ascending."""
    groups: dict[int, list[Record]] = {}
    for record in records:
        if record.source == "policy":
            groups.setdefault(record.step or 0, []).append(record)
    return [_share(step, groups[step]) for step in sorted(groups)]


def total_share(records: Sequence[Record]) -> PolicyShare:
    """The policy's share of the whole run."""
    return _share(None, [record for record in records if record.source == "policy"])


def _share(step: int | None, records: Sequence[Record]) -> PolicyShare:
    parsed = [record for record in records if not is_unparsed(record)]
    correct = [record for record in parsed if record.verdict.is_correct]
    return PolicyShare(
        step=step,
        completions=len(records),
        parsed=len(parsed),
        compiled=sum(_has_loaded(record) for record in parsed),
        correct=len(correct),
        copies=sum(is_copy(record) for record in correct),
        wins=sum(record.verdict.status is Status.WIN and not is_copy(record) for record in correct),
    )


def _has_loaded(record: Record) -> bool:
    """It compiled and loaded: the judge came to verify it. A kernel built in __init__ may fail to compile there."""
    verdict = record.verdict
    return verdict.status in VERIFIED or (
        "verify" in verdict.phase_seconds and verdict.status is not Status.COMPILE_ERROR
    )


def _read_metrics(path: Path) -> tuple[tuple[dict[str, Any], ...], int]:
    """Lines and how many could not be read: a run killed while writing leaves half a line."""
    try:
        found, unreadable = read_metrics(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for line in found:
        key = (str(line.get("stage")), str(line.get("step")))
        lines.pop(key, None)  # a step done again after a kill takes its place at the end
        lines[key] = line
    return tuple(lines.values()), unreadable


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
