"""The operator without a model: the numbers in a correct kernel, tuned by Optuna.

A *knob* is a named number of the kernel, or an OpenMP clause, with a handful of values around it: `#define BLOCK 64`,
`constexpr int TILE = 8;`, `BLOCK = 64` at the top of the Python file, `schedule(static)`, `simdlen(8)`. A loop
without the clause may be given it.

Nothing is kept between calls: a study is told what the archive knows of the kernel under other values (matched by the
text that is left when the knobs are taken out), so a sweep that is interrupted goes on where it stopped.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import math
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from archive.types import Record
from judge.types import Status

if TYPE_CHECKING:
    import optuna

MAX_KNOBS = 8
"""The first knobs of a kernel; more would need more trials than anybody pays for."""
_LARGEST = 65536
_ENUMERABLE = 4096
"""Settings of a space that is looked through one by one."""

_NUMBER = re.compile(
    r"(?P<head>^[ \t]*\#define[ \t]+(?P<a>[A-Z][A-Z0-9_]*)[ \t]+"
    r"|\b(?:static[ \t]+)?(?:constexpr|const)[ \t]+(?:static[ \t]+)?(?:int|long|unsigned|size_t)[ \t]+"
    r"(?P<b>[A-Za-z_]\w*)[ \t]*=[ \t]*"
    r"|^(?P<c>[A-Z][A-Z0-9_]*)[ \t]*=[ \t]*)"
    r"(?P<value>\d+)(?=[ \t]*(?:;|,|$|//|\#))",
    re.MULTILINE,
)
_FOR = re.compile(
    r"#pragma omp parallel for(?: simd)?(?P<value>(?: schedule\(\w+(?:, ?\d+)?\))?)(?=(?:(?!schedule)[^\n])*$)",
    re.MULTILINE,
)
_SIMD = re.compile(r"#pragma omp simd(?P<value>(?: simdlen\(\d+\))?)(?=(?:(?!simdlen)[^\n])*$)", re.MULTILINE)
_LENGTHS = ("", " simdlen(4)", " simdlen(8)", " simdlen(16)")
_SCHEDULES = ("", " schedule(static)", " schedule(static, 1)", " schedule(dynamic, 16)", " schedule(guided)")
_NOT_TUNED = frozenset({"ROWS", "COLS", "BATCH", "SEED", "LEVEL"})


@dataclass(frozen=True)
class Knob:
    """One place of a kernel that may hold other values."""

    name: str
    """Unique in its kernel: "BLOCK", "TILE#2", "schedule#1"."""
    value: str
    """As it stands."""
    choices: tuple[str, ...]
    """What it may be, the present value included."""
    start: int
    """Where the value begins in the code, in characters."""


def find_knobs(code: str) -> tuple[Knob, ...]:
    """The knobs of a kernel in the order of the text, at most MAX_KNOBS.

    Numbers from 2 to 65536 only: 0 and 1 are seldom sizes.
    """
    found = [
        (match.start("value"), match["a"] or match["b"] or match["c"], match["value"])
        for match in _NUMBER.finditer(code)
        if 2 <= int(match["value"]) <= _LARGEST
    ]
    numbers = [(start, name, value, _around(int(value))) for start, name, value in found if name not in _NOT_TUNED]
    clauses = [
        (match.start("value"), name, match["value"], tuple(dict.fromkeys((match["value"], *choices))))
        for name, pattern, choices in (("schedule", _FOR, _SCHEDULES), ("simd", _SIMD, _LENGTHS))
        for match in pattern.finditer(code)
    ]
    knobs: list[Knob] = []
    seen: dict[str, int] = {}
    for start, name, value, choices in sorted([*numbers, *clauses])[:MAX_KNOBS]:
        seen[name] = seen.get(name, 0) + 1
        unique = name if seen[name] == 1 else f"{name}#{seen[name]}"
        knobs.append(Knob(unique, value, choices, start))
    return tuple(knobs)


def set_knobs(code: str, values: Mapping[str, str]) -> str:
    """The code with these knobs at these values. Raises KeyError for a knob that is not there."""
    knobs = {knob.name: knob for knob in find_knobs(code)}
    chosen = [(knobs[name], value) for name, value in values.items()]
    for knob, value in sorted(chosen, key=lambda one: one[0].start, reverse=True):
        code = code[: knob.start] + value + code[knob.start + len(knob.value) :]
    return code


def template_of(code: str) -> str:
    """16 hex digits that agree for kernels which differ in their knobs only."""
    bare = set_knobs(code, {knob.name: "\0" for knob in find_knobs(code)})
    return hashlib.sha256(bare.encode(errors="replace")).hexdigest()[:16]


def next_values(base: Record, records: Sequence[Record], *, count: int, seed: int) -> list[dict[str, str]]:
    """What to try next for a kernel's knobs: `count` settings that no record has, fewer when few are left.

    Optuna's TPE sampler (Bergstra et al., 2011), told of every record with the same template: the speedup, 0 for one
    that failed. Failures of the judge itself say nothing.
    """
    knobs = find_knobs(base.code)
    space = {knob.name: knob.choices for knob in knobs}
    measured = [({knob.name: knob.value for knob in knobs}, base.score), *_measured(base, records)]
    return suggest(space, measured, count=count, seed=seed)


def suggest(
    space: Mapping[str, Sequence[Any]],
    measured: Sequence[tuple[Mapping[str, Any], float]],
    *,
    count: int,
    seed: int,
) -> list[dict[str, Any]]:
    """`count` settings that were not measured yet, fewer when few are left; what Optuna's TPE hopes most of first.

    Args:
        space: the choices of each name.
        measured: (setting, score), larger scores being better.
    """
    import optuna

    if not space or count <= 0:
        return []
    choices = {name: optuna.distributions.CategoricalDistribution(list(values)) for name, values in space.items()}
    logging.getLogger("optuna").setLevel(logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=min(10, 4 * len(space)))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    taken = set()
    for params, score in measured:
        if _key(params) in taken:
            continue
        taken.add(_key(params))
        if all(params.get(name) in space[name] for name in space):
            study.add_trial(optuna.trial.create_trial(params=dict(params), distributions=_any(choices), value=score))
    found: list[dict[str, Any]] = []
    for _ in range(20 * count):
        if len(found) == count:
            break
        trial = study.ask(_any(choices))
        if _key(trial.params) in taken:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        taken.add(_key(trial.params))
        found.append(dict(trial.params))
    if len(found) < count and math.prod(len(values) for values in space.values()) <= _ENUMERABLE:
        # TPE comes back to what it likes: what it left out of a small space is taken at random.
        every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
        left = [values for values in every if _key(values) not in taken]
        found += random.Random(seed).sample(left, min(count - len(found), len(left)))
    return found


def sweep(records: Sequence[Record], *, count: int, seed: int) -> tuple[Record | None, list[str]]:
    """The kernel to tune and `count` new versions of its code.

    The kernel is the fastest of those with the same template; of templates the one whose fastest is the fastest and
    which is not used up. (None, []) when nothing is left to tune.
    """
    correct = [record for record in records if record.verdict.is_correct and record.code]
    seen: set[str] = set()
    for base in sorted(correct, key=lambda record: (-record.score, record.record_id)):
        template = template_of(base.code)
        if template in seen:
            continue
        seen.add(template)
        values = next_values(base, records, count=count, seed=seed)
        if values:
            return base, [set_knobs(base.code, one) for one in values]
    return None, []


def _around(value: int) -> tuple[str, ...]:
    """The value, and powers of two from a quarter of it (at least 2) to four times it."""
    exponent = value.bit_length() - 1
    powers = [1 << e for e in range(max(exponent - 2, 1), exponent + 3) if 1 << e <= _LARGEST]
    return tuple(str(number) for number in dict.fromkeys([value, *powers]))


def _measured(base: Record, records: Sequence[Record]) -> list[tuple[dict[str, str], float]]:
    """(values, speedup) of each record with the base's template."""
    template = template_of(base.code)
    return [
        ({knob.name: knob.value for knob in find_knobs(record.code)}, record.score)
        for record in records
        if record.code and record.verdict.status is not Status.JUDGE_ERROR and template_of(record.code) == template
    ]


def _key(params: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
    return tuple(sorted(params.items()))


def _any(space: dict[str, Any]) -> dict[str, optuna.distributions.BaseDistribution]:
    return dict(space)
