"""Kernels for a task without any model: its traced operations, fused and rendered under many schedules.

    maker = make_templates(task, trace_task(task))
    maker.render(Schedule())                       # a candidate file: ModelNew with C++ kernels

What has no template, such as a convolution or a product of matrices, stays PyTorch's; what stands around it is fused.
Each kernel that comes out is a candidate like any other: the judge says whether it is right and faster.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from archive.types import Record
from judge.task_trace import Trace
from search.emit import Emitter
from search.errors import SearchError
from search.fast_math import FAST, definitions, with_fast_math
from search.fingerprint import fingerprint
from search.loops import BLOCK, CannotRenderError, Function, Schedule, functions_of, render
from search.model_text import forward_arguments, model_text
from search.program import LEAF, VIEW, NoProgramError, Program, read_program
from search.regions import Region, Step, partition
from search.sweep import suggest
from tasks.types import Task

_PRAGMA = '#pragma GCC optimize("no-trapping-math", "no-math-errno")'
_PLAIN = ("vector", "scalar")
_VECTOR = '#define VECTOR __attribute__((simd("notinbranch"), const))'


@dataclass(frozen=True, kw_only=True)
class Templates:
    """What can be rendered for a task."""

    task: Task
    program: Program
    steps: tuple[Step, ...]
    space: dict[str, tuple[str | bool, ...]]
    """Choices of a Schedule that make a difference here; the first of each is what is tried first."""

    @property
    def kernels(self) -> int:
        """Functions in C++."""
        return sum(isinstance(step, Region) for step in self.steps)

    @property
    def library_calls(self) -> int:
        """Operations that stay PyTorch's."""
        return len(self.steps) - self.kernels

    def first_schedules(self) -> list[Schedule]:
        """The default, then each choice changed by itself."""
        base = {name: choices[0] for name, choices in self.space.items()}
        found = [schedule_of(base)]
        for name, choices in self.space.items():
            found += [schedule_of({**base, name: choice}) for choice in choices[1:]]
        return found

    def next_schedules(self, records: Sequence[Record], *, count: int, seed: int) -> list[Schedule]:
        """`count` schedules that no record has: the first ones, then what Optuna makes of the records' speedups."""
        known = {fingerprint(record.code): record.score for record in records if record.code}
        measured = []
        for values in itertools.product(*self.space.values()):
            setting = dict(zip(self.space, values, strict=True))
            key = fingerprint(self.render(schedule_of(setting)))
            if key in known:
                measured.append((setting, known[key]))
        tried = [schedule_of(setting) for setting, _ in measured]
        first = [schedule for schedule in self.first_schedules() if schedule not in tried][:count]
        if first:
            return first
        return [schedule_of(found) for found in suggest(self.space, measured, count=count, seed=seed)]

    def render(self, schedule: Schedule) -> str:
        """A candidate file."""
        emitter, functions = _emitted(self.program, self.steps, schedule)
        return _file(self.task, emitter, functions, schedule)

    def analysis(self, schedule: Schedule) -> str:
        """What a reader should know of a rendered kernel."""
        calls = f" and {self.library_calls} calls of PyTorch" if self.library_calls else ""
        return f"The operations of forward, fused into {self.kernels} kernels{calls}: {schedule.words}."


def schedule_of(values: dict[str, str | bool]) -> Schedule:
    """A schedule by the names of its fields; others keep their defaults."""
    return Schedule(**values)  # type: ignore[arg-type]


def make_templates(task: Task, traces: Sequence[Trace]) -> Templates:
    """The templates of a traced task.

    Raises SearchError in one line when nothing of it can be rendered.
    """
    try:
        program = read_program(traces, forward_arguments(task))
        steps = tuple(partition(program))
        if not any(isinstance(step, Region) for step in steps):
            raise NoProgramError("none of its operations has a template")
        _, functions = _emitted(program, steps, Schedule(math="vector"))
    except (NoProgramError, CannotRenderError) as error:
        raise SearchError(f"{task.where}: no template kernels: {error}") from None
    return Templates(task=task, program=program, steps=steps, space=_space(functions))


def _space(functions: Sequence[Function]) -> dict[str, tuple[str | bool, ...]]:
    space: dict[str, tuple[str | bool, ...]] = {}
    if any(function.can_stage for function in functions):
        space["stage"] = (True, False)
    if functions_of(functions):
        ours = [name in FAST for name in functions_of(functions)]
        space["math"] = ("fast", "vector") if all(ours) else ("fast", "vector", "scalar") if any(ours) else _PLAIN
    if any(function.passes for function in functions):
        space["wide"] = (False, True)
    space["threads"] = (True, False)
    return space


def _emitted(program: Program, steps: Sequence[Step], schedule: Schedule) -> tuple[Emitter, list[Function]]:
    emitter = Emitter(program)
    functions: list[Function] = []
    for step in steps:
        if isinstance(step, Region):
            for output in step.outputs:
                emitter.allocate(output)
            function = render(step, f"k{len(functions)}", schedule, emitter.tensor, emitter.size)
            emitter.lines.append(f"kernel.k{len(functions)}({', '.join(function.arguments)})")
            functions.append(function)
        else:
            emitter.call(step)
    for output in program.outputs:
        if output.kind == LEAF or (output.kind == VIEW and output.root.kind == LEAF):
            raise NoProgramError("it returns an input")
    results = ", ".join(emitter.text(output) for output in program.outputs)
    emitter.lines.append(f"return ({results},)" if program.many and len(program.outputs) == 1 else f"return {results}")
    return emitter, functions


def _file(task: Task, emitter: Emitter, functions: Sequence[Function], schedule: Schedule) -> str:
    head = [_PRAGMA, "#include <cmath>"]
    called = functions_of(functions)
    text = "\n".join(function.text for function in functions)
    if schedule.math == "fast":
        head += definitions(called)
        text = with_fast_math(text)
        called = [name for name in called if name not in FAST]
    if called and schedule.math != "scalar":
        head.append(_VECTOR)
        head += [f"VECTOR float {name}(float{', float' if name == 'powf' else ''});" for name in called]
    if any(function.blocked for function in functions):
        head.append(f"#define BLOCK {BLOCK}")
    source = "\n".join([*head, "", text])
    kernel = f'kernel = warpsmith.load_cpp(r"""\n{source}\n""")'
    return model_text(task, kernel, emitter.arguments(), emitter.lines)
