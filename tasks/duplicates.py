"""Which tasks of one set are in another as well: word for word, the same but for names, or the same operators.

Two views of a task are compared. Its *normal form* is the syntax tree of what defines the computation, without names,
comments and the constants that describe the file. Its *operator graph* is what torch.fx sees of forward: functions,
methods and modules under one name each ("F.relu(x)", "x.relu()", "nn.ReLU()(x)" are all relu), without constants and
shapes, so that a style of writing hides nothing.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.types import Task

EXACT, SAME_OPERATORS, SIMILAR = "exact", "same operators", "similar text"
"""From the strongest: equal normal forms; equal operator graphs; normal forms of which NEAR of the pieces agree."""
NEAR = 0.9
_PIECE = 6
"""Nodes of the normal form that make a piece."""
_DESCRIBING = frozenset(
    {"NAME", "LEVEL", "VARIANTS", "GPU_VARIANTS", "HELD_OUT", "TOLERANCE", "DISTRIBUTIONS", "BACKWARD", "BACKENDS"}
)
_ALIASES = {
    "mm": "matmul",
    "bmm": "matmul",
    "truediv": "div",
    "true_divide": "div",
    "multiply": "mul",
    "subtract": "sub",
    "negative": "neg",
    "absolute": "abs",
    "hardtanh": "clamp",
    "clip": "clamp",
    "t": "transpose",
    "permute": "transpose",
    "swapaxes": "transpose",
    "rms_norm": "rmsnorm",
}
_VIEWS = frozenset({"contiguous", "view", "reshape", "flatten", "unsqueeze", "squeeze", "expand", "float", "getattr"})
"""They move no number."""


@dataclass(frozen=True, kw_only=True)
class Profile:
    """What a task is compared by."""

    name: str
    normal_form: str
    pieces: frozenset[int]
    operators: str | None
    """None where torch.fx cannot trace it, or was not asked to."""


@dataclass(frozen=True, kw_only=True)
class Duplicate:
    """A task of the second set that the first one has too."""

    kind: str
    """EXACT, SAME_OPERATORS or SIMILAR."""
    test: str
    """Name of the second set's task."""
    train: str
    """Name of the first set's."""
    share: float
    """Of the pieces of their normal forms that agree."""
    operators: str | None


def find_duplicates(train: Iterable[Profile], test: Sequence[Profile]) -> list[Duplicate]:
    """For each task of ``test`` its strongest match in ``train``, if any; in the order of ``test``."""
    by_form: dict[str, list[int]] = {}
    by_graph: dict[str, list[int]] = {}
    by_piece: dict[int, list[int]] = {}
    for i, one in enumerate(test):
        by_form.setdefault(one.normal_form, []).append(i)
        if one.operators is not None:
            by_graph.setdefault(one.operators, []).append(i)
        for piece in one.pieces:
            by_piece.setdefault(piece, []).append(i)
    best: dict[int, Duplicate] = {}
    for profile in train:
        shared: dict[int, int] = {}
        for piece in profile.pieces:
            for i in by_piece.get(piece, ()):
                shared[i] = shared.get(i, 0) + 1
        found = dict.fromkeys((i for i, n in shared.items() if n >= NEAR * _union(profile, test[i], n)), SIMILAR)
        found |= dict.fromkeys(by_graph.get(profile.operators or "", ()), SAME_OPERATORS)
        found |= dict.fromkeys(by_form.get(profile.normal_form, ()), EXACT)
        for i, kind in found.items():
            share = shared.get(i, 0) / max(1, _union(profile, test[i], shared.get(i, 0)))
            match = Duplicate(
                kind=kind, test=test[i].name, train=profile.name, share=share, operators=test[i].operators
            )
            if i not in best or _strength(match) > _strength(best[i]):
                best[i] = match
    return [best[i] for i in sorted(best)]


def profile_of(task: Task, *, trace: bool) -> Profile:
    """What a task is compared by.

    Args:
        trace: find its operator graph, which runs the task's code in this process.
    """
    dump = normal_form(task.source)
    words = re.findall(r"\w+", dump)
    pieces = frozenset(hash(tuple(words[i : i + _PIECE])) for i in range(max(1, len(words) - _PIECE + 1)))
    graph = operator_graph(task.source) if trace else None
    return Profile(
        name=task.name,
        normal_form=hashlib.sha256(dump.encode()).hexdigest(),
        pieces=pieces,
        operators=graph or None,
    )


def normal_form(source: str) -> str:
    """The syntax tree without names, docstrings, imports and constants that describe; the file's sizes stay."""
    kept: list[ast.stmt] = []
    for node in ast.parse(source).body:
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
        describes = isinstance(node, ast.Assign) and bool(names & _DESCRIBING)
        if not describes and not isinstance(node, ast.Import | ast.ImportFrom):
            kept.append(node)
    tree = _Renamed().visit(ast.Module(body=kept, type_ignores=[]))
    return ast.dump(tree, annotate_fields=False)


class _Renamed(ast.NodeTransformer):
    """Names in the order in which they come; torch's own stay."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def _name(self, name: str) -> str:
        return self.names.setdefault(name, f"n{len(self.names)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        fixed = node.id in ("torch", "nn", "F", "self", "super", "Model")
        return ast.copy_location(ast.Name(id=node.id if fixed else self._name(node.id), ctx=node.ctx), node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        return ast.arg(arg=node.arg if node.arg == "self" else self._name(node.arg))

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if text.startswith("torch.nn.functional."):
            return ast.Attribute(value=ast.Name(id="F", ctx=ast.Load()), attr=node.attr, ctx=node.ctx)
        if text.startswith("torch.nn.") and text.count(".") == 2:
            return ast.Attribute(value=ast.Name(id="nn", ctx=ast.Load()), attr=node.attr, ctx=node.ctx)
        if isinstance(node.value, ast.Name) and node.value.id == "self":
            return ast.Attribute(value=node.value, attr=self._name(f"self.{node.attr}"), ctx=node.ctx)
        return ast.Attribute(value=self.visit(node.value), attr=node.attr, ctx=node.ctx)

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        return self._without_docstring(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self._without_docstring(node)

    def _without_docstring(self, node: Any) -> ast.AST:
        if ast.get_docstring(node) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return self.generic_visit(node)


def operator_graph(source: str) -> str | None:
    """What forward computes, as torch.fx sees it, or None where it cannot be traced. Runs the file's code."""
    import torch
    from torch.fx import Tracer

    scope: dict[str, Any] = {"__name__": "task"}
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            exec(compile(source, "<task>", "exec"), scope)
            model = scope["Model"](*scope["get_init_inputs"]())
            graph = Tracer().trace(model)
    except Exception:  # whatever a task's code may raise; it is then compared by its text alone
        return None
    texts: dict[Any, str] = {}
    modules = dict(model.named_modules())
    for node in graph.nodes:
        arguments = [texts[argument] for argument in node.all_input_nodes]
        if node.op in ("placeholder", "get_attr"):
            texts[node] = "_"
        elif node.op == "output":
            return " ; ".join(arguments)
        else:
            target = type(modules[node.target]).__name__ if node.op == "call_module" else node.target
            name = _operator(target if isinstance(target, str) else target.__name__)
            name = _narrowed(name, node, arguments)
            if name in _VIEWS and arguments:
                texts[node] = arguments[0]
            elif not arguments:
                texts[node] = "_"
            else:
                texts[node] = f"{name}({','.join(sorted(arguments) if name in ('add', 'mul') else arguments)})"
    return None


def _operator(name: str) -> str:
    plain = name.rsplit(".", 1)[-1].strip("_").lower()
    return _ALIASES.get(plain, plain)


def _narrowed(name: str, node: Any, arguments: Sequence[str]) -> str:
    """relu and square under their names, however they are written."""
    if name == "clamp":
        low = node.kwargs.get("min", node.args[1] if len(node.args) > 1 else None)
        high = node.kwargs.get("max", node.args[2] if len(node.args) > 2 else None)
        if low == 0 and high in (None, 6):
            return "relu" if high is None else "relu6"
    if name == "pow" and node.args[1:] == (2,):
        return "square"
    if name == "mul" and len(node.args) == 2 and node.args[0] is node.args[1]:
        return "square"
    if name in ("sum", "mean", "amax", "amin", "cumsum", "softmax", "logsumexp", "norm", "max", "min", "log_softmax"):
        dim = node.kwargs.get("dim", node.args[1] if len(node.args) > 1 else None)
        return f"{name}{'' if dim is None else '0' if dim in (0, (0,), [0]) else '1'}"
    return name


def _union(one: Profile, other: Profile, shared: int) -> int:
    return len(one.pieces) + len(other.pieces) - shared


def _strength(one: Duplicate) -> tuple[int, float]:
    return (SIMILAR, SAME_OPERATORS, EXACT).index(one.kind), one.share
