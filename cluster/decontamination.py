"""`warpsmith tasks decontaminate`: exact and near duplicates between two sets of tasks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from cluster.errors import ConfigError
from tasks.duplicates import EXACT, SAME_OPERATORS, SIMILAR, Profile, find_duplicates, profile_of
from tasks.types import Task

_OWN = ("suite", "procedural")
_EVERY = 500
"""Tasks between two lines of progress."""


def compare_sets(train: str, test: str, out: TextIO, *, trace: bool, as_json: bool) -> int:
    """Print a line for each duplicate and a count of each kind; return the exit code.

    Args:
        train: a name of tasks, or a corpus that `warpsmith tasks corpus` wrote.
        test: a name of tasks.
        trace: trace all tasks with torch.fx, which runs their code; this project's own are always traced.

    Raises TaskError or ConfigError: one of the two names nothing.
    """
    tested = _profiles(test, trace)
    trained = _profiles(train, trace)
    found = find_duplicates(trained, tested)
    counts = {kind: sum(one.kind == kind for one in found) for kind in (EXACT, SAME_OPERATORS, SIMILAR)}
    untraced = sum(one.operators is None for one in (*trained, *tested))
    if as_json:
        report = {"train": len(trained), "test": len(tested), "untraced": untraced, "counts": counts}
        out.write(json.dumps({**report, "duplicates": [asdict(one) for one in found]}) + "\n")
    else:
        for one in found:
            out.write(f"{one.kind}: {one.test} is {one.train} ({one.share:.0%} of the text)  {one.operators or ''}\n")
        out.write(f"{len(tested)} tasks of {test} against {len(trained)} of {train}: ")
        out.write(", ".join(f"{number} {kind}" for kind, number in counts.items()))
        out.write(f"; {untraced} compared by text alone\n" if untraced else "\n")
    return 1 if counts[EXACT] or counts[SAME_OPERATORS] else 0


def _profiles(name: str, trace: bool) -> list[Profile]:
    from rich.console import Console

    progress = Console(stderr=True, highlight=False)
    tasks, own = _tasks(name)
    made = []
    for number, task in enumerate(tasks, start=1):
        made.append(profile_of(task, trace=own or trace))
        if number % _EVERY == 0:
            progress.print(f"{name}: {number}/{len(tasks)}", markup=False)
    return made


def _tasks(name: str) -> tuple[list[Task], bool]:
    """The tasks of a name, and whether this project wrote them."""
    from tasks.sources import load_tasks

    if name.endswith(".jsonl"):
        return _of_corpus(Path(name)), True
    return load_tasks(name), name.partition(":")[0] in _OWN


def _of_corpus(path: Path) -> list[Task]:
    """The generated tasks that a corpus is of, each once."""
    from tasks.procedural.generate import SPLITS, generated_task

    seeds: dict[tuple[int, bool], None] = {}
    number = 0
    try:
        for text in path.read_text("utf-8").splitlines():
            number += 1
            line = json.loads(text)
            if line["split"] not in SPLITS:
                raise KeyError("split")
            seeds[int(line["seed"]), line["split"] == "longer"] = None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path}: line {number}: no line of `warpsmith tasks corpus` (seed, split)") from None
    return [generated_task(seed, longer=longer).task for seed, longer in seeds]
