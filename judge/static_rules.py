"""Marks on a candidate's text. They mark, they never decide alone: the judge's measurements do.

A rule is a row: a mark, and the names whose use (read from the syntax tree, so comments and strings do not count)
earns it. Only "no custom kernel" has a consequence: a candidate that brings no kernel of its own cannot win.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

NO_CUSTOM_KERNEL = "no custom kernel"
_BUILDERS = frozenset({"load_cpp", "load_cuda", "load_inline", "load", "RawKernel", "RawModule", "jit"})
"""Calls (or decorators) that make a kernel: warpsmith's own, torch.utils.cpp_extension's, CuPy's, Triton's."""


@dataclass(frozen=True)
class Rule:
    mark: str
    names: frozenset[str]
    """Dotted names or their last part."""


RULES = (
    Rule("mentions torch.compile", frozenset({"torch.compile"})),
    Rule("runs text as code", frozenset({"exec", "eval", "compile", "__import__"})),
    Rule("looks into the interpreter", frozenset({"gc", "ctypes", "inspect", "sys._getframe", "sys.modules"})),
    Rule(
        "starts threads or processes", frozenset({"threading", "_thread", "multiprocessing", "subprocess", "os.fork"})
    ),
    Rule("touches clocks", frozenset({"time.perf_counter", "time.time", "time.monotonic", "torch.cuda.Event"})),
    Rule("touches files or network", frozenset({"open", "socket", "urllib", "requests", "pathlib"})),
)


def static_flags(code: str) -> tuple[str, ...]:
    """The marks of a candidate, in the order of the rules; empty for text that is not Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ()
    used = _names_used(tree)
    flags = [rule.mark for rule in RULES if rule.names & used]
    if not _calls_own_kernel(tree):
        flags.insert(0, NO_CUSTOM_KERNEL)
    return tuple(flags)


def _names_used(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(_dotted(node))
        elif isinstance(node, ast.Import):
            names.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def _dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def _calls_own_kernel(tree: ast.AST) -> bool:
    """Whether something built by a builder is called: assigned to a name (or attribute) that is used in a call later.

    Generous on purpose: it must not accuse an honest kernel that is built in an unusual way.
    """
    built: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and _builds(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            built.update(_last(target) for target in targets)
        elif isinstance(node, ast.FunctionDef) and (
            any(_builds(d) or _last(d) in _BUILDERS for d in node.decorator_list)
            or any(isinstance(inner, ast.Return) and inner.value and _builds(inner.value) for inner in ast.walk(node))
        ):
            built.add(node.name)
    return any(
        isinstance(node, ast.Call) and (built & _parts(node.func) or _builds_and_calls(node.func))
        for node in ast.walk(tree)
    )


def _builds(node: ast.AST) -> bool:
    return any(isinstance(inner, ast.Call) and _last(inner.func) in _BUILDERS for inner in ast.walk(node))


def _builds_and_calls(function: ast.expr) -> bool:
    """load_cpp(SOURCE).name(...): built and called in one expression."""
    return isinstance(function, ast.Attribute | ast.Subscript) and _builds(function.value)


def _last(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    return node.id if isinstance(node, ast.Name) else ""


def _parts(function: ast.expr) -> set[str]:
    """Every name in what is called: self.kernel.scale -> {self, kernel, scale}."""
    names = set()
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute):
            names.add(node.attr)
        elif isinstance(node, ast.Name):
            names.add(node.id)
    return names
