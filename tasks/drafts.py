"""From a person's file to a task file: an nn.Module or a function, with sample inputs beside it.

    # my_op.py                              # what a person writes
    import torch

    def my_op(x, scale):
        return torch.softmax(x * scale, dim=-1)

    sample_inputs = [torch.randn(256, 512), torch.rand(512)]

The file stays as it is; what KernelBench's form asks for is added below it. Read as text: nothing of it runs here.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from tasks.errors import TaskError

SAMPLES = ("sample_inputs", "example_inputs", "inputs")
INIT_SAMPLES = ("init_inputs", "init_arguments")
_FORM = "sample_inputs = [torch.randn(256, 512), ...]"


@dataclass(frozen=True, kw_only=True)
class TaskDraft:
    """A task file, and what is worth telling the person."""

    source: str
    target: str
    """The class or function that it makes faster."""
    notes: tuple[str, ...]
    """One line each."""


def draft_task(source: str, where: str, target: str | None = None) -> TaskDraft:
    """The task file of a person's file.

    Args:
        where: its path, for messages.
        target: name of the module or function, where the file has several.

    Raises TaskError: not Python, nothing to make faster, no sample inputs, arguments that do not fit.
    """
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None) or 1
        raise TaskError(f"{where}:{line}: not Python ({getattr(error, 'msg', error)}); mend the syntax") from None
    names = {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    if {"Model", "get_inputs", "get_init_inputs"} <= names:
        return TaskDraft(source=source, target="Model", notes=("it is a task file already",))
    chosen = _chosen(tree, where, target)
    samples = _assigned(tree, SAMPLES)
    if samples is None and "get_inputs" not in names:
        raise TaskError(f"{where}: no sample inputs; add a line {_FORM} with what forward is called with")
    if samples is not None and not isinstance(samples.value, ast.List | ast.Tuple):
        raise TaskError(f"{where}:{samples.lineno}: the sample inputs must be a list or a tuple, as in {_FORM}")
    init = _assigned(tree, INIT_SAMPLES)
    notes = []
    blocks = [_without(source, [node for node in (samples, init) if node is not None])]
    blocks.append(_model(chosen, init, where, has_init="get_init_inputs" in names))
    if samples is not None:
        assert isinstance(samples.value, ast.List | ast.Tuple)
        given = ast.List(elts=samples.value.elts, ctx=ast.Load())
        _check_count(chosen, len(given.elts), where, samples.lineno)
        blocks.append(f"def get_inputs():\n    return {ast.unparse(given)}")
        if "rand" not in ast.unparse(samples.value):
            notes.append(
                "the sample inputs are not random: the judge draws other floating numbers from them, but a "
                "constant input may make the task degenerate; torch.randn(...) is the usual choice"
            )
    if "get_init_inputs" not in names:
        blocks.append(f"def get_init_inputs():\n    return {ast.unparse(init.value) if init is not None else '[]'}")
    if _assigned(tree, ("VARIANTS",)) is None:
        notes.append(
            "it is verified on one shape only: name the sizes (ROWS = 256) and add VARIANTS = {...}, one of "
            "them in HELD_OUT, so that kernels that are right for one shape are found out"
        )
    return TaskDraft(
        source="\n\n\n".join(block.strip("\n") for block in blocks) + "\n", target=chosen.name, notes=tuple(notes)
    )


def _chosen(tree: ast.Module, where: str, target: str | None) -> ast.ClassDef | ast.FunctionDef:
    """The module or function that is meant; modules before functions."""
    modules = [node for node in tree.body if isinstance(node, ast.ClassDef) and _is_module(node)]
    functions = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name not in ("get_inputs", "get_init_inputs")
    ]
    known: list[ast.ClassDef | ast.FunctionDef] = [*modules, *functions]
    if target is not None:
        found = next((node for node in known if node.name == target), None)
        if found is None:
            raise TaskError(f"{where}: no module or function {target}; it has {_listed(known) or 'none'}")
        return found
    if not known:
        raise TaskError(f"{where}: defines no torch.nn.Module and no function; add the operation to make faster")
    if len(modules) > 1 or (not modules and len(functions) > 1):
        raise TaskError(f"{where}: several could be meant ({_listed(modules or functions)}); name one with --target")
    return known[0]


def _is_module(node: ast.ClassDef) -> bool:
    return any(ast.unparse(base).endswith("Module") for base in node.bases)


def _listed(nodes: object) -> str:
    return ", ".join(node.name for node in nodes)  # type: ignore[attr-defined]


def _assigned(tree: ast.Module, names: tuple[str, ...]) -> ast.Assign | None:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names:
            return node
    return None


def _without(source: str, nodes: list[ast.Assign]) -> str:
    """The text without these assignments: get_inputs makes fresh ones at each call."""
    lines = source.split("\n")
    for node in nodes:
        lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or node.lineno) - node.lineno + 1)
    return "\n".join(lines).rstrip()


def _model(chosen: ast.ClassDef | ast.FunctionDef, init: ast.Assign | None, where: str, *, has_init: bool) -> str:
    if isinstance(chosen, ast.FunctionDef):
        arguments = ", ".join(["self", *(a.arg for a in chosen.args.args)])
        passed = ", ".join(a.arg for a in chosen.args.args)
        if chosen.args.vararg is not None:
            arguments, passed = "self, *inputs", "*inputs"
        head = "class Model(torch.nn.Module):" if chosen.name != "Model" else ""
        if not head:
            raise TaskError(f"{where}:{chosen.lineno}: the function is called Model; give it another name")
        return f"{head}\n    def forward({arguments}):\n        return {chosen.name}({passed})"
    maker = next((n for n in chosen.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    needed = len(maker.args.args) - 1 - len(maker.args.defaults) if maker is not None else 0
    if needed > 0 and init is None and not has_init:
        wanted = ", ".join(a.arg for a in maker.args.args[1 : 1 + needed]) if maker is not None else ""
        raise TaskError(f"{where}:{chosen.lineno}: {chosen.name} is made with {wanted}; add a line init_inputs = [...]")
    return "" if chosen.name == "Model" else f"class Model({chosen.name}):\n    pass"


def _check_count(chosen: ast.ClassDef | ast.FunctionDef, number: int, where: str, line: int) -> None:
    """Whether the samples are as many as forward takes."""
    function: ast.FunctionDef | None
    if isinstance(chosen, ast.FunctionDef):
        function, bound = chosen, 0
    else:
        function = next((n for n in chosen.body if isinstance(n, ast.FunctionDef) and n.name == "forward"), None)
        bound = 1
    if function is None:
        raise TaskError(f"{where}:{chosen.lineno}: {chosen.name} has no forward of its own; add one")
    most = len(function.args.args) - bound
    least = most - len(function.args.defaults)
    if function.args.vararg is None and not least <= number <= most:
        takes = str(most) if least == most else f"{least} to {most}"
        raise TaskError(f"{where}:{line}: {number} sample inputs, {chosen.name} takes {takes}")
