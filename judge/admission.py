"""Whether a task can be judged at all: its reference passes as a candidate, and candidates that do nothing do not.

    with Judge() as judge:
        admission = admit(judge, load_task("softmax"))
        admission.faults                     # empty: the task may be used

A task whose output is constant, whose inputs do not matter or whose output is lost in its own rounding rewards whoever
notices it, and no judge can help: KernelBench issue 165 (zeros pass), robust-kbench's filters. So each way of doing
nothing is judged as a candidate. All of them are the reference itself with its answer or its inputs spoilt, which
makes them the strongest of their kind: the "mean" below is that of the right output.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from judge.api import Judge
from judge.types import Candidate, Status, Verdict
from tasks.errors import TaskError
from tasks.types import Task

MAX_PROBED = 16
"""Inputs, and parameters, that are looked at one by one."""
MAX_TOLERANCE = 0.25
"""Share of the output's size from which on a tolerance says nothing: half of the judge's limit on its L2 error."""
NOT_HERE = "warpsmith-does-not-apply"
"""In the message of a probe that cannot be made for this task: it counts as failed."""

_HELPERS = f'''

import torch as _torch


def _each(value, change):
    if isinstance(value, (list, tuple)):
        return type(value)(_each(item, change) for item in value)
    return change(value)


def _pick(items, index):
    if index >= len(items):
        raise IndexError("{NOT_HERE}")
    return items[index]


def _other(x, turn):
    """x with other numbers of its kind; several ways in turn: a sum forgets order, a norm scale, a square the sign."""
    if x.numel() == 0:
        raise IndexError("{NOT_HERE}")
    shuffled = x.flatten()[_torch.randperm(x.numel()).to(x.device)].view(x.shape)
    if x.dtype == _torch.bool:
        changed = (~x, shuffled)[turn % 2]
    elif x.is_floating_point():
        changed = (x * 0.5 + 0.25, -x, shuffled, _torch.randn(x.shape).to(x) + 0.5)[turn % 4]
    else:
        changed = (x.min() + x.max() - x, shuffled)[turn % 2]
    return changed.contiguous()
'''

_REFERENCE = "\n\nModelNew = Model\n"

_SPOILT = {
    "zeros": "return _each(Model.forward(self, *inputs), _torch.zeros_like)",
    "mean": """return _each(
            Model.forward(self, *inputs),
            lambda y: _torch.full_like(y, y.double().mean().item() if y.numel() else 0),
        )""",
    "stale output": """right = Model.forward(self, *inputs)
        last, self._last = getattr(self, "_last", right), _each(right, _torch.clone)
        shapes = []
        _each((right, last), lambda y: shapes.append(y.shape))
        half = len(shapes) // 2
        return last if shapes[:half] == shapes[half:] else right""",
}

_COPY = """given = _pick([x for x in inputs if isinstance(x, _torch.Tensor)], {index})

        def copy(y):
            if y.shape != given.shape or y.dtype != given.dtype:
                raise ValueError("{not_here}: the shapes differ")
            return given.clone()

        return _each(Model.forward(self, *inputs), copy)"""

_OTHER_INPUT = """places = [i for i, x in enumerate(inputs) if isinstance(x, _torch.Tensor)]
        place = _pick(places, {index})
        self._turn = getattr(self, "_turn", -1) + 1
        changed = list(inputs)
        changed[place] = _other(inputs[place], self._turn)
        return Model.forward(self, *changed)"""

_OTHER_PARAMETER = """parameter = _pick(list(self.parameters()), {index})
        self._turn = getattr(self, "_turn", -1) + 1
        kept = parameter.detach().clone()
        parameter.data = _other(kept, self._turn)
        try:
            return Model.forward(self, *inputs)
        finally:
            parameter.data = kept"""


@dataclass(frozen=True, kw_only=True)
class Check:
    """One candidate that was judged for the task's sake."""

    name: str
    """Such as "reference", "zeros", "copy of input 0", "input 1 replaced"."""
    wanted: str
    """"correct" or "fails"."""
    verdict: Verdict
    ok: bool


@dataclass(frozen=True, kw_only=True)
class Fault:
    kind: str
    """"reference fails", "reference wins", "zero output", "constant output", "inputs do not matter", "output is input",
    "dead input", "dead parameter", "output below tolerance" or "cannot run"."""
    reason: str
    """One line: what was seen, and what to do."""


@dataclass(frozen=True, kw_only=True)
class Admission:
    """What is known of a task's fitness."""

    task_name: str
    checks: tuple[Check, ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def admitted(self) -> bool:
        return not self.faults

    @property
    def judge_failed(self) -> bool:
        """Whether one of the checks has no answer."""
        return any(check.verdict.status is Status.JUDGE_ERROR for check in self.checks)


def admit(judge: Judge, task: Task) -> Admission:
    """Judge the reference and every way of doing nothing. Raises SandboxError as Judge.judge does."""
    session = _Session(judge, task)
    try:
        faults = tuple(session.faults())
    except TaskError as error:
        faults = (Fault(kind="cannot run", reason=str(error)),)
    return Admission(task_name=task.name, checks=tuple(session.checks), faults=faults)


def reference_candidate(task: Task) -> Candidate:
    """The task's own Model as a candidate: its true speedup is 1."""
    return Candidate(code=task.source + _REFERENCE)


def spoilt_candidate(task: Task, body: str) -> Candidate:
    """The reference with another ``forward(self, *inputs)``, which may call ``Model.forward``."""
    model = f"\n\nclass ModelNew(Model):\n    def forward(self, *inputs):\n        {body}\n"
    return Candidate(code=task.source + _HELPERS + model)


class _Session:
    def __init__(self, judge: Judge, task: Task) -> None:
        self.judge, self.task = judge, task
        self.checks: list[Check] = []

    def faults(self) -> Iterator[Fault]:
        reference = self._judged("reference", reference_candidate(self.task), wanted="correct")
        if reference.status is Status.JUDGE_ERROR:
            return
        if (reference.tolerance or 0.0) >= MAX_TOLERANCE:
            yield Fault(
                kind="output below tolerance",
                reason=f"the tolerance ({reference.tolerance:.3g} of the output's size) is as large as the output, "
                "which is lost in rounding or random, or TOLERANCE is too large; nothing can be verified",
            )
            return
        if not reference.is_correct:
            yield Fault(
                kind="reference fails",
                reason=f"as its own candidate the reference is {reference.status}: {reference.message}; random numbers "
                "or module constants inside forward do this (pass sizes by get_init_inputs)",
            )
            return
        threshold = self.judge.settings.win_threshold
        if (reference.speedup_low or 0.0) > threshold:
            # Its status cannot be "win", since it brings no kernel: the interval is what would have won.
            self.checks[-1] = replace(self.checks[-1], ok=False)
            yield Fault(
                kind="reference wins",
                reason=f"the reference is measured as {reference.message} of itself: its calls are too short, or the "
                "machine too restless; make them longer",
            )
        nothing_matters = False
        for fault in self._spoilt_outputs():
            nothing_matters = True
            yield fault
        if not nothing_matters:  # else the next ones would all be true as well
            yield from self._one_by_one(
                "copy of input {}", _COPY, "output is input", "its output is a copy of input {}"
            )
            yield from self._one_by_one(
                "input {} replaced", _OTHER_INPUT, "dead input", "input {} does not matter: other numbers, same output"
            )
            yield from self._one_by_one(
                "parameter {} replaced",
                _OTHER_PARAMETER,
                "dead parameter",
                "parameter {} does not matter: other numbers, same output",
            )

    def _spoilt_outputs(self) -> Iterator[Fault]:
        if self._passes("zeros"):
            yield Fault(kind="zero output", reason="its output is zero: a candidate that returns zeros passes")
            return
        if self._passes("mean"):
            yield Fault(
                kind="constant output", reason="its output is constant: a candidate that returns the mean passes"
            )
            return
        if self._passes("stale output"):
            yield Fault(
                kind="inputs do not matter",
                reason="its output is the same for all inputs: a candidate that returns its first answer again passes",
            )

    def _passes(self, name: str) -> bool:
        return self._judged(name, spoilt_candidate(self.task, _SPOILT[name]), wanted="fails").is_correct

    def _one_by_one(self, name: str, body: str, kind: str, reason: str) -> Iterator[Fault]:
        for index in range(MAX_PROBED):
            text = body.format(index=index, not_here=NOT_HERE)
            verdict = self._judged(name.format(index), spoilt_candidate(self.task, text), wanted="fails")
            if NOT_HERE in verdict.message:
                self.checks.pop()
                if "the shapes differ" not in verdict.message:
                    return
            elif verdict.is_correct:
                yield Fault(kind=kind, reason=reason.format(index))

    def _judged(self, name: str, candidate: Candidate, *, wanted: str) -> Verdict:
        verdict = self.judge.judge(self.task, candidate)
        ok = verdict.is_correct == (wanted == "correct") and verdict.status is not Status.JUDGE_ERROR
        self.checks.append(Check(name=name, wanted=wanted, verdict=verdict, ok=ok))
        return verdict
