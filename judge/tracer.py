"""What runs inside the reference jail when a task is traced: which operations of ATen its forward comes down to.

This file's text is put behind the task's own (judge/task_trace.py), so it imports torch and the standard library only
and all its names begin with ``_trace``. Its answer is JSON text, which passes as the task's init argument.
"""

from __future__ import annotations

import json as _trace_json
from typing import Any as _Any

import torch as _trace_torch
from torch.utils._python_dispatch import TorchDispatchMode as _TraceMode

_TRACE_OPERATIONS = 400
"""A forward of more operations than this is no task for templates."""
_TRACE_ATTRIBUTES = 12


class _TraceError(Exception):
    """Why there is no trace."""


class _TraceLog(_TraceMode):  # type: ignore[misc]
    """Writes down every operation; tensors are numbers in the order in which they appear."""

    def __init__(self) -> None:
        super().__init__()
        self.alive: list[_Any] = []
        self.numbers: dict[int, int] = {}
        self.metas: list[_Any] = []
        self.operations: list[_Any] = []

    def number(self, tensor: _Any, new: bool = False) -> int:
        if new or id(tensor) not in self.numbers:
            self.alive.append(tensor)  # its id must not be given to another one
            self.numbers[id(tensor)] = len(self.metas)
            self.metas.append(
                {
                    "shape": list(tensor.shape),
                    "stride": list(tensor.stride()),
                    "offset": tensor.storage_offset(),
                    "dtype": str(tensor.dtype).removeprefix("torch."),
                }
            )
        return self.numbers[id(tensor)]

    def packed(self, value: _Any) -> _Any:
        if isinstance(value, _trace_torch.Tensor):
            return {"t": self.number(value)}
        if isinstance(value, (list, tuple)):
            return [self.packed(item) for item in value]
        if isinstance(value, float):
            return {"f": repr(value)}
        if value is None or isinstance(value, (bool, int, str)):
            return value
        return {"o": str(value)}

    def __torch_dispatch__(self, func: _Any, types: _Any, args: _Any = (), kwargs: _Any = None) -> _Any:
        kwargs = kwargs or {}
        name = str(func)
        if "_local_scalar_dense" in name:
            raise _TraceError("forward looks at the values of a tensor")
        if len(self.operations) >= _TRACE_OPERATIONS:
            raise _TraceError(f"forward has more than {_TRACE_OPERATIONS} operations")
        packed, named = self.packed(args), {key: self.packed(value) for key, value in kwargs.items()}
        mutated = [
            i
            for i, argument in enumerate(func._schema.arguments)
            if argument.alias_info is not None and argument.alias_info.is_write and i < len(args)
        ]
        result = func(*args, **kwargs)
        many = isinstance(result, (list, tuple))
        outputs = [
            self.number(item, new=True) if isinstance(item, _trace_torch.Tensor) else None
            for item in (result if many else [result])
        ]
        self.operations.append(
            {"op": name, "args": packed, "kwargs": named, "outs": outputs, "many": many, "mutated": mutated}
        )
        return result


def _trace_once(model: _Any, inputs: _Any) -> _Any:
    log = _TraceLog()
    leaves = [{"t": log.number(x), "input": i} for i, x in enumerate(inputs) if isinstance(x, _trace_torch.Tensor)]
    named = [
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    ]
    leaves += [{"t": log.number(tensor), "path": name} for name, tensor in named]
    with log:
        result = model(*inputs)
    many = isinstance(result, (list, tuple))
    results = list(result) if many else [result]
    if not all(type(item) in (_trace_torch.Tensor, _trace_torch.nn.Parameter) for item in results):
        raise _TraceError("forward returns something else than tensors")
    return {
        "leaves": leaves,
        "tensors": log.metas,
        "operations": log.operations,
        "outputs": [log.number(item) for item in results],
        "many": many,
    }


def _trace_numbers(value: _Any, path: tuple[_Any, ...] = ()) -> dict[_Any, str]:
    """Every float in a trace's operations by its place."""
    if isinstance(value, dict) and set(value) == {"f"}:
        return {path: value["f"]}
    items = enumerate(value) if isinstance(value, list) else value.items() if isinstance(value, dict) else ()
    found: dict[_Any, str] = {}
    for key, item in items:
        found.update(_trace_numbers(item, (*path, key)))
    return found


def _trace_attributes(model: _Any, inputs: _Any, first: _Any) -> list[_Any]:
    """[place, attribute] of each number in the trace that is the value of one of the modules' attributes: told by
    changing the attribute and looking again."""
    found: list[_Any] = []
    tried = 0
    for prefix, module in model.named_modules():
        for name, value in list(vars(module).items()):
            if type(value) is not float or tried >= _TRACE_ATTRIBUTES:
                continue
            tried += 1
            changed = value * 1.25 + 0.0625
            setattr(module, name, changed)
            try:
                again = _trace_once(model, inputs)
            except Exception:
                continue
            finally:
                setattr(module, name, value)
            before = _trace_numbers(first["operations"])
            after = _trace_numbers(again["operations"])
            if before.keys() == after.keys():
                path = f"{prefix}.{name}" if prefix else name
                found += [
                    [list(place), path]
                    for place in before
                    if before[place] == repr(value) and after[place] == repr(changed)
                ]
    return found


def _trace_answer(module: dict[str, _Any]) -> str:
    """JSON text: the trace of module["Model"], or {"error": why there is none}."""
    try:
        _trace_torch.manual_seed(0)
        model = module["Model"](*module["get_init_inputs"]()).eval()
        inputs = list(module["get_inputs"]())
        with _trace_torch.no_grad():
            first = _trace_once(model, inputs)
            first["attributes"] = _trace_attributes(model, inputs, first)
        return _trace_json.dumps(first)
    except Exception as error:
        return _trace_json.dumps({"error": f"{type(error).__name__}: {error}"[:300]})
