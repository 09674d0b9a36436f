"""What a policy can do: completions for tasks that it was not trained on, judged, as shares with intervals.

Pure: judged answers in, a summary out. Completions of one task are alike, so tasks and not completions are the unit of
the intervals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from judge.static_rules import NO_CUSTOM_KERNEL
from judge.types import Status, Verdict
from search.verifier import wilson_low
from tasks.types import Task

RESAMPLES = 2000
_SERIAL = re.compile(r"_\d+$")


@dataclass(frozen=True, kw_only=True)
class Judged:
    """One completion and what the judge said of it."""

    source: str = ""
    """What named the task, such as "procedural:test:50"."""
    task: str
    family: str
    index: int
    verdict: Verdict
    parsed: bool
    """Whether the completion held a candidate at all."""
    tokens: int = 0
    """Of the completion."""
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class Share:
    """A share of completions, with a 95% interval over tasks."""

    value: float
    low: float
    high: float


def family_of(task: Task) -> str:
    """Generated tasks are called after their family, "row_norm_17"; others count by level."""
    name = _SERIAL.sub("", task.name)
    return name if name != task.name else f"level {task.level}"


def share(answers: Sequence[Judged], holds: Callable[[Judged], bool]) -> Share:
    """How many answers it holds for. The interval is a percentile bootstrap over tasks (Efron, 1979; 2000 resamples of
    a fixed seed); where all tasks agree, and a bootstrap knows no spread, Wilson's for as many trials as tasks."""
    hits: Counter[str] = Counter(answer.task for answer in answers if holds(answer))
    counts = Counter(answer.task for answer in answers)
    rows = np.array([(hits[task], count) for task, count in sorted(counts.items())], dtype=float)  # [tasks, 2]
    if not len(rows):
        return Share(value=0.0, low=0.0, high=1.0)
    value = float(rows[:, 0].sum() / rows[:, 1].sum())
    if value in (0.0, 1.0):
        edge = wilson_low(len(rows), len(rows))
        return Share(value=value, low=edge if value else 0.0, high=1.0 if value else 1.0 - edge)
    drawn = np.random.default_rng(0).integers(len(rows), size=(RESAMPLES, len(rows)))
    sums = rows[drawn].sum(axis=1)  # [resamples, 2]
    ends: Any = np.percentile(sums[:, 0] / sums[:, 1], [2.5, 97.5])
    return Share(value=value, low=float(ends[0]), high=float(ends[1]))


def summarise(answers: Sequence[Judged]) -> dict[str, Any]:
    """The whole, each source and each family, JSON-able: counts, statuses, shares of parsed, correct and winning
    completions, and of tasks with at least one correct completion; speedups where they were measured."""
    families = sorted({answer.family for answer in answers})
    return {
        "all": _part(answers),
        "sources": {
            name: _part([answer for answer in answers if answer.source == name])
            for name in dict.fromkeys(answer.source for answer in answers)
        },
        "families": {name: _part([answer for answer in answers if answer.family == name]) for name in families},
    }


def _part(answers: Sequence[Judged]) -> dict[str, Any]:
    correct = [answer for answer in answers if answer.verdict.is_correct]
    speedups = [answer.verdict.speedup for answer in correct if answer.verdict.speedup is not None]
    tasks = {answer.task for answer in answers}
    solved = len({answer.task for answer in correct})
    part: dict[str, Any] = {
        "tasks": len(tasks),
        "completions": len(answers),
        "statuses": dict(sorted(Counter(_status(answer) for answer in answers).items())),
        "parsed": _plain(share(answers, lambda answer: answer.parsed)),
        "correct": _plain(share(answers, lambda answer: answer.verdict.is_correct)),
        "win": _plain(share(answers, lambda answer: answer.verdict.status is Status.WIN)),
        "no_custom_kernel": sum(NO_CUSTOM_KERNEL in answer.verdict.flags for answer in correct),
        "tasks_solved": solved / len(tasks) if tasks else 0.0,
        "truncated": sum(answer.truncated for answer in answers),
        "mean_tokens": sum(answer.tokens for answer in answers) / max(len(answers), 1),
    }
    if speedups:
        part["speedup_median"] = float(np.median(speedups))
        part["speedup_geomean"] = float(np.exp(np.mean(np.log(speedups))))
    return part


def table(summary: dict[str, Any]) -> Iterable[tuple[str, ...]]:
    """Rows of text: a heading, one row a family, one a source where there are several, the whole at the end."""
    yield ("family", "tasks", "completions", "parsed", "correct", "win", "solved", "speedup")
    sources = summary["sources"] if len(summary["sources"]) > 1 else {}
    for name, part in [*summary["families"].items(), *sources.items(), ("all", summary["all"])]:
        speedup = f"{part['speedup_geomean']:.2f}x" if "speedup_geomean" in part else "-"
        yield (
            name,
            str(part["tasks"]),
            str(part["completions"]),
            *(_percent(part[key]) for key in ("parsed", "correct", "win")),
            f"{part['tasks_solved']:.0%}",
            speedup,
        )


def _status(answer: Judged) -> str:
    return str(answer.verdict.status) if answer.parsed else "unparsed"


def _plain(one: Share) -> dict[str, float]:
    return {"share": one.value, "low": one.low, "high": one.high}


def _percent(part: dict[str, float]) -> str:
    return f"{part['share']:.1%} [{part['low']:.1%}, {part['high']:.1%}]"
