"""ModelNew made of a task's own Model: the same constructor, another forward, and no more of the file than it needs."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from search.program import NoProgramError
from tasks.types import Task

_NEEDED = ("import torch", "import warpsmith")


def forward_arguments(task: Task) -> list[str]:
    """Names of the arguments of Model.forward. Raises NoProgramError for ``*args`` or where Model has none."""
    methods = [item for item in _model(task).body if isinstance(item, ast.FunctionDef)]
    forward = next((item for item in methods if item.name == "forward"), None)
    if forward is None:
        raise NoProgramError("Model has no forward of its own")
    if forward.args.vararg or forward.args.kwonlyargs or forward.args.posonlyargs:
        raise NoProgramError("forward takes a variable number of arguments")
    return [argument.arg for argument in forward.args.args[1:]]


def model_text(task: Task, kernel: str, arguments: Sequence[str], lines: Sequence[str]) -> str:
    """A candidate file.

    Args:
        kernel: the statement that compiles it.
        arguments: of forward, "" for one that is not used.
        lines: the body of forward.
    """
    model = _model(task)
    source = task.source.splitlines()
    forward = next(item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "forward")
    names = [argument.arg for argument in forward.args.args]
    defaults = [ast.get_source_segment(task.source, default) or "None" for default in forward.args.defaults]
    plain = len(names) - len(defaults)
    signature = [*names[:plain], *(f"{n}={d}" for n, d in zip(names[plain:], defaults, strict=True))]
    kept: list[ast.stmt] = [
        item for item in model.body if isinstance(item, ast.FunctionDef) and item.name == "__init__"
    ]
    kept += [item for item in model.body if isinstance(item, ast.Assign | ast.AnnAssign)]
    used = {name for item in kept for name in _names(item)}
    methods = [item for item in model.body if isinstance(item, ast.FunctionDef) and item.name in used]
    kept += [item for item in methods if item not in kept and item is not forward]
    parts = [_text(source, item) for item in sorted(kept, key=lambda item: item.lineno)]
    body = "\n\n".join(re.sub(r"\bsuper\(Model\b", "super(ModelNew", part) for part in parts)
    bases = ", ".join(ast.get_source_segment(task.source, base) or "" for base in model.bases)
    new = [f"class ModelNew({bases or 'torch.nn.Module'}):"]
    new += [body, ""] if body else []
    new += [f"    def forward({', '.join(signature)}):", *(f"        {line}" for line in lines)]
    needed = {name for item in kept for name in _names(item)} | {
        name for base in [*model.bases, *forward.args.defaults] for name in _names(base)
    }
    imports, others = _reached(task, needed)
    texts = [_text(source, item) for item in imports]
    texts = [*_NEEDED, *(text for text in texts if text not in _NEEDED)]
    blocks = ["\n".join(texts), *(_text(source, item) for item in others), kernel]
    return "\n\n".join(blocks) + "\n\n\n" + "\n".join(new) + "\n"


def _model(task: Task) -> ast.ClassDef:
    tree = ast.parse(task.source)
    return next(item for item in tree.body if isinstance(item, ast.ClassDef) and item.name == "Model")


def _text(source: Sequence[str], node: ast.stmt) -> str:
    decorators = getattr(node, "decorator_list", [])
    first = min([node.lineno, *(d.lineno for d in decorators)])
    return "\n".join(source[first - 1 : node.end_lineno])


def _names(node: ast.AST) -> set[str]:
    """Names and attributes that a node reads."""
    found = {inner.id for inner in ast.walk(node) if isinstance(inner, ast.Name)}
    return found | {inner.attr for inner in ast.walk(node) if isinstance(inner, ast.Attribute)}


def _reached(task: Task, needed: set[str]) -> tuple[list[ast.stmt], list[ast.stmt]]:
    """The file's imports and definitions that these names lead to, at any distance."""
    tree = ast.parse(task.source)
    own = ("Model", "get_inputs", "get_init_inputs")
    statements = [item for item in tree.body if getattr(item, "name", "") not in own]
    wanted, grown = set(needed), True
    chosen: set[ast.stmt] = set()
    while grown:
        grown = False
        for item in statements:
            if item not in chosen and _defines(item) & wanted:
                chosen.add(item)
                wanted |= _names(item)
                grown = True
    ordered = [item for item in statements if item in chosen]
    imports: list[ast.stmt] = [item for item in ordered if isinstance(item, ast.Import | ast.ImportFrom)]
    return imports, [item for item in ordered if not isinstance(item, ast.Import | ast.ImportFrom)]


def _defines(statement: ast.stmt) -> set[str]:
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in statement.names}
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return {statement.name}
    return {node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
