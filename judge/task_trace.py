"""The operations that a task's forward comes down to, found by running it once in the reference jail.

    traces = trace_task(load_task("my_op.py"))
    traces[0].operations[0].name                  # "aten.add.Tensor"

Nothing of the task runs in this process: a task made of its text and judge/tracer.py's is loaded by a reference
process, and what it passes as init argument is the trace. It is data from foreign code, so every part is checked here.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judge import wire
from judge.errors import JudgeError
from judge.process import Zygote
from judge.reference import Reference
from judge.settings import JudgeSettings
from tasks.errors import TaskError
from tasks.types import Task

_SECONDS = 60.0
_TRACER = Path(__file__).with_name("tracer.py")
_ENTRY = """

_trace_module = dict(globals())


class _TraceEmpty(_trace_torch.nn.Module):
    def __init__(self, *ignored):
        super().__init__()


def get_init_inputs():
    answer = _trace_answer(_trace_module)
    globals()["Model"] = _TraceEmpty  # not before: super(Model, self) in the task's own class looks it up
    return [answer]
"""


@dataclass(frozen=True)
class Ref:
    """A tensor of the trace, by its number."""

    number: int


@dataclass(frozen=True)
class Attribute:
    """A float that is the value of a module's attribute, such as ``self.scale``."""

    value: float
    path: str
    """"scale", "norm.eps"."""


@dataclass(frozen=True)
class Opaque:
    """A dtype, device, layout or memory format, as its text."""

    text: str


@dataclass(frozen=True, kw_only=True)
class TensorFacts:
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    """In elements."""
    offset: int
    """In elements, from the beginning of its storage."""
    dtype: str
    """"float32"."""


@dataclass(frozen=True, kw_only=True)
class Operation:
    name: str
    """"aten.add.Tensor"."""
    args: tuple[Any, ...]
    """Ref, Attribute, Opaque, numbers, strings, None, and tuples of them."""
    kwargs: dict[str, Any]
    outs: tuple[int | None, ...]
    """Numbers of its results; None for one that is no tensor."""
    many: bool
    """Whether it returns a list or a tuple."""
    mutated: tuple[int, ...]
    """Indices of arguments that it writes to."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One call of forward on one variant's inputs."""

    operations: tuple[Operation, ...]
    tensors: tuple[TensorFacts, ...]
    inputs: dict[int, int]
    """Tensor number -> index of the argument of forward."""
    parameters: dict[int, str] = field(default_factory=dict)
    """Tensor number -> name in the module's parameters and buffers, such as "norm.weight"."""
    outputs: tuple[int, ...]
    many: bool
    """Whether forward returns a list or a tuple."""


def trace_task(task: Task, settings: JudgeSettings | None = None) -> tuple[Trace, ...]:
    """A trace for each variant of the task on this device, the default one first.

    Raises TaskError when forward cannot be traced (it looks at values, returns no tensors, or fails), JudgeError when
    no jail starts.
    """
    chosen = settings or JudgeSettings()
    source = f"{task.source}\n\n{_tracer_text()}{_ENTRY}"
    derived = replace(task, source=source)
    zygote = Zygote(chosen.model_copy(update={"device": "cpu"}))
    try:
        found = []
        for variant in task.variants:
            with Reference(zygote, derived, variant, time.monotonic() + _SECONDS) as reference:
                found.append(read_trace(reference.setup.arguments, task.where))
        return tuple(found)
    finally:
        zygote.close()


def read_trace(packed: Any, where: str) -> Trace:
    """The trace in a reference's packed init arguments. Raises TaskError."""
    try:
        (text,) = wire.unpack_value(packed, [])
        data = json.loads(text)
    except (TypeError, ValueError, KeyError) as error:
        raise TaskError(f"{where}: tracing it gave no trace ({error})") from None
    if "error" in data:
        raise TaskError(f"{where}: forward cannot be traced: {data['error']}")
    try:
        return _trace(data)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError) as error:
        raise TaskError(f"{where}: tracing it gave a damaged trace ({type(error).__name__})") from None


def _tracer_text() -> str:
    """judge/tracer.py without its __future__ line, which may only stand at the top of a file."""
    text = _TRACER.read_text()
    if "from __future__ import annotations\n" not in text:
        raise JudgeError("judge/tracer.py is not as expected; install warpsmith again")
    return text.replace("from __future__ import annotations\n", "")


def _trace(data: dict[str, Any]) -> Trace:
    attributes = {tuple(place): str(path) for place, path in data["attributes"]}
    tensors = tuple(
        TensorFacts(
            shape=tuple(map(int, meta["shape"])),
            stride=tuple(map(int, meta["stride"])),
            offset=int(meta["offset"]),
            dtype=str(meta["dtype"]),
        )
        for meta in data["tensors"]
    )

    def known(number: Any) -> int:
        if not isinstance(number, int) or not 0 <= number < len(tensors):
            raise ValueError(number)
        return number

    def value(item: Any, place: tuple[Any, ...]) -> Any:
        if isinstance(item, list):
            return tuple(value(part, (*place, i)) for i, part in enumerate(item))
        if isinstance(item, dict):
            ((kind, content),) = item.items()
            if kind == "t":
                return Ref(known(content))
            if kind == "f":
                number = float(content)
                return Attribute(number, attributes[place]) if place in attributes else number
            return Opaque(str(content))
        return item

    operations = tuple(
        Operation(
            name=str(one["op"]),
            args=value(one["args"], (i, "args")),
            kwargs={str(key): value(item, (i, "kwargs", key)) for key, item in one["kwargs"].items()},
            outs=tuple(None if number is None else known(number) for number in one["outs"]),
            many=bool(one["many"]),
            mutated=tuple(map(int, one["mutated"])),
        )
        for i, one in enumerate(data["operations"])
    )
    return Trace(
        operations=operations,
        tensors=tensors,
        inputs={known(leaf["t"]): int(leaf["input"]) for leaf in data["leaves"] if "input" in leaf},
        parameters={known(leaf["t"]): str(leaf["path"]) for leaf in data["leaves"] if "path" in leaf},
        outputs=tuple(known(number) for number in data["outputs"]),
        many=bool(data["many"]),
    )
