"""From a generated task and its scored kernels to supervised samples: plain, contrast and repair.

The prompts are made by the functions that training uses, so that the policy meets the same form later.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from archive.types import Record
from judge.types import Baselines, Candidate, Status, Verdict
from search.operators import expert_completion
from search.proposals import View, propose
from search.settings import SearchSettings
from search.types import Prompt
from tasks.procedural.analysis import analysis, design
from tasks.procedural.generate import GeneratedTask
from tasks.procedural.kernels import Kernel
from tasks.procedural.mutations import broken
from tasks.types import Task

KINDS = ("plain", "contrast", "repair")
NEAR_BEST = 0.9
"""Share of the best speed that the answer to a plain prompt has at least."""
APART = 1.15
"""Two exemplars differ by this factor, and the answer is faster than the better one by half as much."""
_TRIES = 3
"""Broken variants that are judged for one repair sample; some are right in spite of their fault."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """A correct kernel, and how fast it is where that was measured."""

    kernel: Kernel
    microseconds: float | None = None
    eager_microseconds: float | None = None

    @property
    def speedup(self) -> float | None:
        if not self.microseconds or not self.eager_microseconds:
            return None
        return self.eager_microseconds / self.microseconds


class JudgeOne(Protocol):
    """Judge.judge."""

    def __call__(self, task: Task, candidate: Candidate) -> Verdict: ...


@dataclass(frozen=True, kw_only=True)
class Maker:
    """What samples are made with."""

    search: SearchSettings
    kinds: Sequence[str]
    per_task: int
    hardware: dict[str, str]
    """As in Verdict.hardware."""
    count_tokens: Callable[[str], int]
    count_answer: Callable[[str], int]
    most_tokens: int
    """Of prompt and answer together."""
    judge: JudgeOne | None = None
    """For repair samples; none are made without it."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """The lines of one task, and why others were not made."""

    lines: tuple[dict[str, Any], ...]
    left_out: tuple[str, ...]


def samples_of(task: GeneratedTask, scored: Sequence[Scored], maker: Maker) -> Made:
    """At most ``per_task`` samples, the kinds in turn. The seed of the task decides all."""
    rng = random.Random(f"samples {task.seed}")
    ordered = sorted(scored, key=lambda one: one.speedup or 0.0, reverse=True)
    if ordered and ordered[0].speedup is None:
        rng.shuffle(ordered)
    writers = {"plain": _plain, "contrast": _contrast, "repair": _repair}
    sources = [writers[kind](task, ordered, maker, rng) for kind in maker.kinds]
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    left_out: list[str] = []
    while sources and len(lines) < maker.per_task:
        for source in list(sources):
            line = next(source, None)
            if line is None:
                sources.remove(source)
                continue
            if line["tokens"][0] + line["tokens"][1] > maker.most_tokens:
                left_out.append(f"{line['kind']}: longer than {maker.most_tokens} tokens")
                continue
            lines.setdefault((line["prompt"], line["answer"]), line)
            if len(lines) == maker.per_task:
                break
    return Made(lines=tuple(lines.values()), left_out=tuple(left_out))


def record_of(task: GeneratedTask, one: Scored, hardware: dict[str, str]) -> Record:
    """A kernel as an exemplar: what the archive would hold of it."""
    backend = one.kernel.backend
    speedup = one.speedup
    verdict = Verdict(
        status=Status.WIN if (speedup or 0) > 1 else Status.CORRECT,
        speedup=speedup,
        candidate_ms=None if one.microseconds is None else one.microseconds / 1e3,
        baselines=Baselines(eager=None if one.eager_microseconds is None else one.eager_microseconds / 1e3),
        hardware=hardware,
    )
    return _record(task, one.kernel.code, verdict, backend)


def _record(task: GeneratedTask, code: str, verdict: Verdict, backend: str) -> Record:
    return Record(
        run_id="generated",
        task_name=task.task.name,
        task_id=task.task.task_id,
        source="expert",
        operator="expert",
        code=code,
        extra={"backend": backend},
        verdict=verdict,
    )


def _plain(
    task: GeneratedTask, ordered: Sequence[Scored], maker: Maker, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """The best kernel, and those that are nearly as fast; all kernels where nothing was timed."""
    for one in ordered:
        if one.speedup is not None and one.speedup < NEAR_BEST * (ordered[0].speedup or 0.0):
            return
        prompt = _prompt("vanilla", task, [], maker, one.kernel.backend)
        if prompt is not None:
            yield _line("plain", task, prompt, one, _analysis(task, one), maker)


def _contrast(
    task: GeneratedTask, ordered: Sequence[Scored], maker: Maker, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """Two kernels of unlike speed, and one that is faster than both."""
    if not ordered or ordered[0].speedup is None:
        return
    best, speeds = ordered[0], [one.speedup or 0.0 for one in ordered]
    pairs = [
        (ordered[slow], ordered[fast])
        for fast in range(len(ordered))
        for slow in range(fast + 1, len(ordered))
        if speeds[fast] * (1 + (APART - 1) / 2) <= speeds[0] and speeds[slow] * APART <= speeds[fast]
    ]
    rng.shuffle(pairs)
    for slow, fast in pairs:
        records = [record_of(task, one, maker.hardware) for one in (slow, fast)]
        prompt = _prompt("contrast", task, records, maker, best.kernel.backend)
        if prompt is None:
            continue
        text = _analysis(task, best)
        if len(prompt.exemplar_ids) == 2:
            text += f" The slower implementation: {slow.kernel.note}. The faster one: {fast.kernel.note}."
        yield _line("contrast", task, prompt, best, text, maker)


def _repair(
    task: GeneratedTask, ordered: Sequence[Scored], maker: Maker, rng: random.Random
) -> Iterator[dict[str, Any]]:
    """A kernel with a fault and the judge's message, and the kernel without it."""
    if maker.judge is None or not ordered:
        return
    good = [one for one in ordered if one.speedup is None or one.speedup >= 0.5 * (ordered[0].speedup or 0.0)]
    for _ in range(2):
        one = rng.choice(good)
        for number, fault in enumerate(broken(one.kernel, rng)):
            if number == _TRIES:
                break
            verdict = maker.judge(task.task, Candidate(code=fault.code))
            if verdict.is_correct or verdict.status is Status.JUDGE_ERROR:
                continue
            record = _record(task, fault.code, verdict, one.kernel.backend)
            prompt = _prompt("repair", task, [record], maker, one.kernel.backend)
            if prompt is not None:
                yield {
                    **_line("repair", task, prompt, one, fault.explanation, maker),
                    "fault": fault.fault,
                    "status": verdict.status.value,
                }
            break


def _prompt(operator: str, task: GeneratedTask, records: list[Record], maker: Maker, backend: str) -> Prompt | None:
    settings = maker.search.model_copy(update={"backend": backend, "sampler": "random", "exemplars": 2})
    if not settings.hardware:
        settings = settings.model_copy(update={"hardware": hardware_text(maker.hardware, backend)})
    return propose(
        operator,
        task.task,
        View(records=records),
        settings,
        np.random.default_rng([task.seed, len(records)]),
        prompt_id=f"{task.task.name}-{operator}",
        count_tokens=maker.count_tokens,
    )


def hardware_text(hardware: dict[str, str], backend: str) -> str:
    """The machine as training's prompts name it."""
    from search.operators import hardware_of

    verdict = Verdict(status=Status.CORRECT, hardware=hardware)
    shown = Record(run_id="", task_name="", task_id="", source="", operator="", code="", verdict=verdict)
    return hardware_of([shown], SearchSettings(backend="cuda" if backend == "cuda" else "cpp"))


def _analysis(task: GeneratedTask, one: Scored) -> str:
    backend = one.kernel.backend
    shape = (task.shapes.cpu if backend == "cpp" else task.shapes.gpu)[0]
    return analysis(task.graph, shape, backend)


def _line(kind: str, task: GeneratedTask, prompt: Prompt, one: Scored, text: str, maker: Maker) -> dict[str, Any]:
    question = prompt.messages[0]["content"]
    answer = expert_completion(one.kernel.code, text, design(one.kernel))
    score = one.speedup
    return {
        "prompt": question,
        "answer": answer,
        "score": 1.0 if score is None else round(score, 3),
        "task": task.task.name,
        "kind": kind,
        "family": task.family,
        "split": task.split,
        "seed": task.seed,
        "schedule": json.dumps(dict(one.kernel.schedule)),
        "tokens": [maker.count_tokens(question), maker.count_answer(answer)],
    }
