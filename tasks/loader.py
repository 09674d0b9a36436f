"""Task files read as text: nothing of a task runs here.

    load_task("softmax")                   # of the bundled suite
    load_task("my_op.py")                  # any file in KernelBench's form, or a folder that holds task.py
    parse_task(source)                     # text from elsewhere

Every problem is a TaskError in one line: ``path:line: what is wrong; what to do``.
"""

from __future__ import annotations

import ast
import difflib
import functools
import hashlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.types import DISTRIBUTIONS, Task, Variant

SUITE = Path(__file__).parent / "suite"
BACKENDS = ("cpp", "cuda", "triton")
MAX_BYTES = 1 << 20
"""A task goes into a prompt, so a larger file is a mistake."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_LEVEL_FOLDER = re.compile(r"level_?(\d+)", re.IGNORECASE)
_REQUIRED = {
    "Model": "class Model(torch.nn.Module)",
    "get_inputs": "def get_inputs(), which returns the list of inputs of forward",
    "get_init_inputs": "def get_init_inputs(), which returns the list of arguments of Model (often [])",
}


def load_task(name_or_path: str | Path) -> Task:
    """A task of the suite by its name, a task file, or a folder that holds ``task.py``.

    Raises TaskError when there is no such task or it cannot be used.
    """
    if isinstance(name_or_path, str) and name_or_path in _suite():
        return _suite()[name_or_path]
    path = Path(name_or_path)
    try:
        if path.is_dir():
            path = path / "task.py"
            if not path.is_file():
                raise TaskError(f"{_shown(name_or_path)}: the folder holds no task.py; give the path of the task file")
        elif not path.exists() and not _looks_like_path(name_or_path):
            return suite_task(str(name_or_path))
        return parse_task(_read(path), str(path))
    except (OSError, ValueError) as error:  # ValueError: a null byte in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise TaskError(f"{_shown(name_or_path)}: cannot be read ({reason}); check the path") from error


def suite_tasks() -> tuple[Task, ...]:
    """The bundled tasks, by level and name."""
    return tuple(_suite().values())


def suite_task(name: str) -> Task:
    """The bundled task of this name; TaskError names the nearest one when there is none."""
    if name in _suite():
        return _suite()[name]
    near = difflib.get_close_matches(name, _suite(), n=1, cutoff=0.5)
    remedy = f"did you mean {near[0]!r}?" if near else f"the suite has {', '.join(_suite())}"
    raise TaskError(f"{_shown(name)}: no task of the suite and no file; {remedy}")


def parse_task(source: str, path: str | None = None) -> Task:
    """Read the text of a task file; ``path`` is used for messages, and for name and level where the file has none.

    Raises TaskError (one line, with the line number) when the file is not Python, lacks a part of KernelBench's form,
    or one of the optional constants cannot be used.
    """
    tree = _parse(source, path)
    constants = _Constants(tree, path)
    defined = {node.name: node for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    for name, form in _REQUIRED.items():
        node = defined.get(name)
        if node is None or isinstance(node, ast.ClassDef) != (name == "Model"):
            raise TaskError(f"{_where(path)}: no {name} at top level; add {form}")
        if isinstance(node, ast.FunctionDef) and len(node.args.args) > len(node.args.defaults):
            raise TaskError(f"{_where(path, node)}: {name} is called without arguments; give its parameters defaults")
    name = constants.take("NAME", _name, "letters, digits, '_', '.' and '-', such as NAME = \"my_op\"")
    tolerance = constants.take("TOLERANCE", _positive, "a number above 0, such as TOLERANCE = 1e-4")
    distributions = constants.take("DISTRIBUTIONS", _subset(DISTRIBUTIONS), f"some of {', '.join(DISTRIBUTIONS)}")
    return Task(
        name=name or _name_of(source, path),
        source=source,
        path=path,
        level=constants.take("LEVEL", _level, "a whole number from 1, such as LEVEL = 1") or _level_of(path),
        variants=_variants(constants),
        gpu_variants=_gpu_variants(constants),
        tolerance=None if tolerance is None else float(tolerance),
        distributions=distributions or DISTRIBUTIONS,
        backward=constants.take("BACKWARD", _bool, "True or False") or False,
        strided=constants.take("STRIDED", _bool, "True or False") or False,
        backends=constants.take("BACKENDS", _subset(BACKENDS), f"some of {', '.join(BACKENDS)}") or ("cpp",),
    )


def variant_source(source: str, constants: dict[str, Any]) -> str:
    """The file with the values of top-level ``NAME = value`` lines replaced; lines keep their numbers.

    Raises TaskError for a constant that has no such line, or a value that is not a literal.
    """
    for name, value in constants.items():
        if not _is_literal(value):
            raise TaskError(
                f"{name}: {_shown(repr(value))} is not a literal; give numbers, strings, lists and the like"
            )
    values = {name: repr(value) for name, value in constants.items()}
    nodes = _assignments(_parse(source, None))
    if missing := sorted(set(values) - set(nodes)):
        raise TaskError(f"{missing[0]}: no top-level line {missing[0]} = ... to replace; add one")
    spans = [(node, values[name]) for name in values for node in nodes[name]]
    lines = source.encode().splitlines(keepends=True)
    for node, text in sorted(spans, key=lambda span: (span[0].lineno, span[0].col_offset), reverse=True):
        _replace(lines, node, text)
    return b"".join(lines).decode()


@functools.cache
def _suite() -> dict[str, Task]:
    tasks = [parse_task(_read(path), str(path)) for path in SUITE.glob("level*/*/task.py")]
    return {task.name: task for task in sorted(tasks, key=lambda task: (task.level, task.name))}


def _read(path: Path) -> str:
    """Text of a file; OSError when there is none."""
    if path.exists() and not path.is_file():
        raise TaskError(f"{path}: not a regular file; give the path of a task file")
    if path.stat().st_size > MAX_BYTES:
        raise TaskError(
            f"{path}: larger than {MAX_BYTES >> 10} KiB; a task file holds code only, make data in get_inputs"
        )
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise TaskError(f"{path}:{line}: not UTF-8; save the file as UTF-8") from error


def _parse(source: str, path: str | None) -> ast.Module:
    try:
        return ast.parse(source)
    except SyntaxError as error:
        where = f"{path or '<task>'}:{error.lineno or 1}"
        raise TaskError(f"{where}: not Python ({error.msg}); mend the syntax") from error
    except (ValueError, RecursionError, MemoryError) as error:  # null bytes; nesting too deep for the parser
        raise TaskError(f"{path or '<task>'}: not Python ({error or 'nested too deep'}); mend the file") from error


def _assigned(statement: ast.stmt) -> list[tuple[str, ast.expr]]:
    """(name, value) of ``NAME = value`` or ``NAME: type = value``, else nothing."""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target, value = statement.targets[0], statement.value
    elif isinstance(statement, ast.AnnAssign) and statement.value is not None:
        target, value = statement.target, statement.value
    else:
        return []
    return [(target.id, value)] if isinstance(target, ast.Name) else []


def _assignments(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """The values given to each name by the module's own lines, in order."""
    values: dict[str, list[ast.expr]] = {}
    for statement in tree.body:
        for name, value in _assigned(statement):
            values.setdefault(name, []).append(value)
    return values


class _Constants:
    """The literal constants of a task file; takes them one by one, and complains with their line."""

    def __init__(self, tree: ast.Module, path: str | None) -> None:
        self.nodes = {name: values[-1] for name, values in _assignments(tree).items()}
        self.path = path

    def take(self, name: str, check: Callable[[Any], Any], form: str) -> Any:
        """None when absent, else what ``check`` makes of the value; ``check`` returns None for a wrong one."""
        node = self.nodes.get(name)
        if node is None:
            return None
        try:
            literal = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            raise self.error(name, f"{name} is not a literal; write it out, without calls or names") from None
        value = check(literal)
        if value is None:
            raise self.error(name, f"{name} = {_shown(ast.unparse(node))} cannot be used; it must be {form}")
        return value

    def error(self, name: str, text: str) -> TaskError:
        return TaskError(f"{_where(self.path, self.nodes.get(name))}: {text}")


def _variants(constants: _Constants) -> tuple[Variant, ...]:
    form = '{"name": {"CONSTANT": value}}'
    named = constants.take("VARIANTS", _variant_dict, f"a dict of dicts, such as VARIANTS = {form}") or {}
    held_out = constants.take("HELD_OUT", _names, 'a tuple of names, such as HELD_OUT = ("odd",)') or ()
    if "default" in named:
        raise constants.error("VARIANTS", 'the variant "default" is the file as it stands; choose another name')
    _check_constants(constants, "VARIANTS", named)
    for name in held_out:
        if name not in named:
            known = ", ".join(named) or "none"
            raise constants.error("HELD_OUT", f"{name!r} is no variant; VARIANTS has {known}{_nearest(name, named)}")
    variants = (Variant(name=name, constants=c, held_out=name in held_out) for name, c in named.items())
    return (Variant(name="default", constants={}), *variants)


def _gpu_variants(constants: _Constants) -> tuple[Variant, ...]:
    """GPU_VARIANTS: the shapes on a GPU, all of them, its "default" among them; HELD_OUT names hold for both."""
    form = '{"default": {"CONSTANT": value}, "name": {...}}'
    named = constants.take("GPU_VARIANTS", _variant_dict, f"a dict of dicts, such as GPU_VARIANTS = {form}")
    if named is None:
        return ()
    if next(iter(named), None) != "default":
        raise constants.error("GPU_VARIANTS", 'the first entry must be "default", the shapes that are timed')
    _check_constants(constants, "GPU_VARIANTS", named)
    held_out = constants.take("HELD_OUT", _names, "a tuple of names") or ()
    return tuple(Variant(name=name, constants=c, held_out=name in held_out) for name, c in named.items())


def _check_constants(constants: _Constants, where: str, named: dict[str, dict[str, Any]]) -> None:
    for name, replaced in named.items():
        for constant, value in replaced.items():
            if constant not in constants.nodes:
                remedy = f"add a line {constant} = ... or correct the name{_nearest(constant, constants.nodes)}"
                raise constants.error(where, f"variant {name!r} replaces {constant}, which is no constant; {remedy}")
            if not _is_literal(value):
                raise constants.error(
                    where, f"variant {name!r} gives {constant} a value that is not a literal; use finite numbers"
                )


def _name(value: Any) -> str | None:
    return value if isinstance(value, str) and _NAME.fullmatch(value) else None


def _level(value: Any) -> int | None:
    return value if type(value) is int and value >= 1 else None


def _positive(value: Any) -> float | None:
    return value if type(value) in (int, float) and 0 < value < float("inf") else None


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _names(value: Any) -> tuple[str, ...] | None:
    is_names = isinstance(value, tuple | list) and all(isinstance(name, str) for name in value)
    return tuple(value) if is_names else None


def _subset(known: tuple[str, ...]) -> Callable[[Any], tuple[str, ...] | None]:
    def check(value: Any) -> tuple[str, ...] | None:
        names = _names(value)
        return tuple(dict.fromkeys(names)) if names and set(names) <= set(known) else None

    return check


def _variant_dict(value: Any) -> dict[str, dict[str, Any]] | None:
    is_dict = isinstance(value, dict) and all(isinstance(v, dict) and _name(k) for k, v in value.items())
    return value if is_dict and all(isinstance(c, str) for v in value.values() for c in v) else None


def _is_literal(value: Any) -> bool:
    """Whether the value comes back from its text: not so for infinities and objects."""
    try:
        return bool(ast.literal_eval(repr(value)) == value)
    except (ValueError, SyntaxError, TypeError):
        return False


def _replace(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Put ``text`` where ``node`` is; what spanned several lines spans as many afterwards."""
    first, last = node.lineno - 1, _last_line(node) - 1
    if last > first:
        text = f"({text}{chr(10) * (last - first)})"
    rest = lines[last][node.end_col_offset :]
    replaced = lines[first][: node.col_offset] + text.encode() + rest  # ast counts columns in bytes
    lines[first : last + 1] = replaced.splitlines(keepends=True)


def _last_line(node: ast.stmt | ast.expr) -> int:
    return node.end_lineno or node.lineno


def _name_of(source: str, path: str | None) -> str:
    """KernelBench names tasks by their files; a ``task.py`` has its folder's name; text alone has its digest's."""
    if path is None:
        return f"task_{hashlib.sha256(source.encode()).hexdigest()[:8]}"
    file = Path(path)
    stem = file.resolve().parent.name if file.name == "task.py" else file.stem
    return re.sub(r"[^A-Za-z0-9_.-]", "_", stem).lstrip("_.-") or "task"


def _level_of(path: str | None) -> int:
    """From the nearest folder called level1, level2, ... as KernelBench has them; 1 where there is none."""
    for part in reversed(Path(path or "").parts[:-1]):
        if match := _LEVEL_FOLDER.fullmatch(part):
            return max(1, int(match[1]))
    return 1


def _where(path: str | None, node: ast.AST | None = None) -> str:
    return f"{path or '<task>'}:{getattr(node, 'lineno', 1)}"


def _looks_like_path(name: str | Path) -> bool:
    return isinstance(name, Path) or name.endswith(".py") or "/" in name or "\\" in name


def _nearest(name: str, known: dict[str, Any]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {near[0]}?)" if near else ""


def _shown(value: object) -> str:
    """For messages: one line, not too long."""
    text = " ".join(str(value).split())
    return text if len(text) <= 120 else text[:117] + "..."
