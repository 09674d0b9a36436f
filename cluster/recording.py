"""What was asked, answered and judged, as a file that a run can be repeated from: rollouts.jsonl beside the run.

One line an expert's verdict or a group; a group is written when it has been judged and before it is learned from, so
its rewards and advantages are those that the learner was given. A resumed step writes its groups again, and the last
line of a group counts.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from cluster.errors import ConfigError
from judge.types import Status, Verdict
from search.types import Completion, Prompt

ROLLOUTS = "rollouts.jsonl"
UNPARSED = "unparsed"
"""Flag of a verdict on a completion that held no candidate."""

Stage = Literal["sft", "self_supervised", "contrastive"]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """One completion and what became of it."""

    completion: Completion
    record_id: str
    verdict: Verdict
    reward: float | None = None
    """Raw; None where there is none: a judge_error."""
    earned: float | None = None
    """With the later turns of its trajectory, discounted; the reward itself where there is one turn."""
    smoothed: float | None = None
    """What was earned, smoothed by the task's running statistics."""
    advantage: float | None = None

    @property
    def status(self) -> str:
        """The verdict's status, or "unparsed"."""
        return UNPARSED if UNPARSED in self.verdict.flags else str(self.verdict.status)

    @property
    def counts(self) -> bool:
        """Whether it says anything about the policy: a judge_error and a refused prompt do not."""
        return self.verdict.status is not Status.JUDGE_ERROR and bool(self.completion.token_ids)


@dataclass(frozen=True, kw_only=True)
class Group:
    """One prompt's answers in one step."""

    kind: Literal["group"] = "group"
    run_id: str
    stage: Stage
    step: int
    task_name: str
    task_id: str
    prompt: Prompt
    answers: tuple[Answer, ...]
    turn: int = 1
    root: str = ""
    """prompt_id of the first turn; empty in the first turn itself."""
    trajectory: int = 0
    """Which answer of the first turn this one goes on from."""

    @property
    def root_id(self) -> str:
        """The same for all turns that are measured against each other."""
        return self.root or self.prompt.prompt_id


@dataclass(frozen=True, kw_only=True)
class ExpertVerdict:
    """What the judge said of a bundled kernel."""

    kind: Literal["expert"] = "expert"
    run_id: str
    record_id: str
    verdict: Verdict


@dataclass(kw_only=True)
class Recording:
    """The content of a rollouts.jsonl."""

    where: Path
    groups: dict[tuple[str, int, str], Group] = field(default_factory=dict)
    """By (stage, step, prompt_id), in the order in which they were learned from."""
    experts: dict[str, ExpertVerdict] = field(default_factory=dict)
    """By record_id."""

    @property
    def run_id(self) -> str:
        """Of the run that was recorded; record ids follow from it."""
        lines: list[Group | ExpertVerdict] = [*self.groups.values(), *self.experts.values()]
        return lines[0].run_id if lines else ""

    def step_groups(self, stage: Stage, step: int) -> list[Group]:
        return [group for (a, b, _), group in self.groups.items() if (a, b) == (stage, step)]

    def steps(self, stage: Stage) -> list[int]:
        """Recorded steps of a stage, ascending."""
        return sorted({step for name, step, _ in self.groups if name == stage})

    def verdicts(self) -> dict[str, Verdict]:
        """By record_id."""
        found = {record_id: line.verdict for record_id, line in self.experts.items()}
        found.update({a.record_id: a.verdict for group in self.groups.values() for a in group.answers})
        return found


class Recorder:
    """Appends lines to a run's rollouts.jsonl; each is on disk when the call returns."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError when the file cannot be written."""
        self._path = folder / ROLLOUTS
        try:
            torn = self._path.exists() and self._path.stat().st_size > 0 and _last_byte(self._path) != b"\n"
            self._file = self._path.open("ab")
            if torn:  # a kill in the middle of a line
                self._file.write(b"\n")
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None

    def write(self, *lines: Group | ExpertVerdict) -> None:
        """Raises ConfigError when the disk is full."""
        try:
            for line in lines:
                self._file.write(_adapter(ExpertVerdict if line.kind == "expert" else Group).dump_json(line) + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None

    def close(self) -> None:
        self._file.close()


def read_recording(where: str | Path) -> Recording:
    """A rollouts.jsonl, given as such or by its run's folder. Half a line that a kill left behind is passed over.

    Raises ConfigError: no such file, a line that is no group, or nothing in it.
    """
    path = Path(where)
    path = path / ROLLOUTS if path.is_dir() else path
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; give a run's folder or its {ROLLOUTS}") from None
    recording = Recording(where=path)
    for number, line in enumerate(lines, start=1):
        if line.strip():
            _take(recording, line, number)
    if not recording.groups:
        raise ConfigError(f"{path}: holds no group: nothing was sampled in that run")
    return recording


def _take(recording: Recording, line: bytes, number: int) -> None:
    try:
        kind = json.loads(line)["kind"]
    except (ValueError, KeyError, TypeError):
        # Only whole lines are ever followed by another: a torn one is what a kill left.
        return
    try:
        if kind == "expert":
            expert = _adapter(ExpertVerdict).validate_json(line)
            recording.experts[expert.record_id] = expert
        else:
            group = _adapter(Group).validate_json(line)
            key = (group.stage, group.step, group.prompt.prompt_id)
            recording.groups.pop(key, None)  # a step done again after a kill comes in its new place
            recording.groups[key] = group
    except ValueError as error:
        reason = " ".join(str(error).split())[:200]
        raise ConfigError(f"{recording.where}: line {number} is no group of a rollout: {reason}") from None


@lru_cache
def _adapter(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)


def _last_byte(path: Path) -> bytes:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1)
