"""A record as a Python file of its own, which needs torch and a C++ compiler but not warpsmith.

text = export_candidate(record)
Path("fast_softmax.py").write_text(text)     # then: from fast_softmax import ModelNew
"""

from __future__ import annotations

import ast
import hashlib
from pathlib import Path

from archive.errors import ArchiveError
from archive.types import Record
from tasks.types import Task

_TEMPLATE = Path(__file__).parent / "load_cpp_template.py"
_PROVIDED = frozenset({"load_cpp"})
"""Names of warpsmith that the template defines."""


def export_candidate(record: Record, task: Task | None = None) -> str:
    """The stand-alone file of a record's candidate: what was measured, a small load_cpp, the candidate.

    Args:
        task: adds to the heading which reference the candidate replaces, and on which variants it was verified.

    Raises ArchiveError when the record holds no Python code, or the code needs more of warpsmith than load_cpp.
    """
    if not record.code.strip():
        raise ArchiveError(
            f"record {record.record_id}: holds no code; export one that `warpsmith archive` lists with it"
        )
    try:
        tree = ast.parse(record.code)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ArchiveError(f"record {record.record_id}: its code is not Python; export another one") from error
    future, code = _without_warpsmith(record, tree)
    template = "" if code == record.code else _TEMPLATE.read_text("utf-8").rstrip() + "\n\n\n"
    return f"{_heading(record, task)}\n{future}{template}{code.strip()}\n"


def _heading(record: Record, task: Task | None) -> str:
    verdict = record.verdict
    if verdict.is_correct and verdict.speedup is not None:
        low, high = verdict.speedup_low or verdict.speedup, verdict.speedup_high or verdict.speedup
        result = (
            f"{verdict.status}: {verdict.speedup:.2f}x, 99% interval {low:.2f} to {high:.2f}, "
            f"against {verdict.best_baseline or 'the baseline'}"
        )
    else:
        result = f"NOT VERIFIED ({verdict.status}): {verdict.message}"
    hardware = ", ".join(f"{name}: {value}" for name, value in sorted(verdict.hardware.items()))
    fields = {
        "task": f"{record.task_name} ({record.task_id})",
        "speedup": result,
        "hardware": hardware or "not recorded",
        "flags": ", ".join(verdict.flags) or "none",
        "record": f"{record.record_id} by {record.source} in run {record.run_id}, {record.created_at.isoformat()}",
        "sha256": f"{hashlib.sha256(record.code.encode()).hexdigest()} of the candidate as it was judged",
    }
    if task is not None:
        fields["reference"] = f"{Path(task.where).name}, variants {', '.join(v.name for v in task.variants)}"
    # Split and joined: a value with a line break in it must not become code.
    lines = [f"# {name + ':':<10} {' '.join(value.split())}\n" for name, value in fields.items()]
    return "".join(["# A kernel exported by warpsmith; it needs torch and a C++ compiler (g++, or CXX).\n", *lines])


def _without_warpsmith(record: Record, tree: ast.Module) -> tuple[str, str]:
    """The ``from __future__`` lines, which must stay first, and the code without its imports of warpsmith."""
    lines = [line.encode() for line in record.code.replace("\r\n", "\n").replace("\r", "\n").split("\n")]
    future: list[str] = []
    for node in sorted(_imports(tree), key=lambda node: (node.lineno, node.col_offset), reverse=True):
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            future.insert(0, ast.unparse(node))
            text = "pass"
        elif "warpsmith" in _modules(node):
            text = _replacement(record, node)
        else:
            continue
        _replace(lines, node, text)
    _refuse_unknown_names(record, tree)
    return "".join(f"{line}\n" for line in future), b"\n".join(lines).decode()


def _imports(tree: ast.Module) -> list[ast.Import | ast.ImportFrom]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]


def _modules(node: ast.Import | ast.ImportFrom) -> set[str]:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return {name.split(".")[0] for name in names}


def _replacement(record: Record, node: ast.Import | ast.ImportFrom) -> str:
    """What stands in place of an import of warpsmith: the other imports, and the template's object by its alias."""
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            _require_provided(record, alias.name if node.module == "warpsmith" else f"{node.module}.{alias.name}")
        parts = [f"{alias.asname or alias.name} = warpsmith.{alias.name}" for alias in node.names]
        return "; ".join(parts)
    parts = []
    for alias in node.names:
        if alias.name.split(".")[0] != "warpsmith":
            parts.append(ast.unparse(ast.Import([alias])))
        elif alias.name != "warpsmith":
            _require_provided(record, alias.name)
        elif alias.asname:
            parts.append(f"{alias.asname} = warpsmith")
    return "; ".join(parts) or "pass"


def _refuse_unknown_names(record: Record, tree: ast.Module) -> None:
    names = {"warpsmith"}
    for node in _imports(tree):
        if isinstance(node, ast.Import):
            names.update(alias.asname for alias in node.names if alias.name == "warpsmith" and alias.asname)
    for inner in ast.walk(tree):
        if isinstance(inner, ast.Attribute) and isinstance(inner.value, ast.Name) and inner.value.id in names:
            _require_provided(record, inner.attr)


def _require_provided(record: Record, name: str) -> None:
    if name not in _PROVIDED:
        raise ArchiveError(
            f"record {record.record_id}: its code uses {name} of warpsmith, which a stand-alone file does not hold; "
            "export a record that uses load_cpp only"
        )


def _replace(lines: list[bytes], node: ast.stmt, text: str) -> None:
    """Put a text in a statement's place; the lines it spanned stay, so that line numbers do."""
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    tail = lines[last][node.end_col_offset :]
    lines[first] = lines[first][: node.col_offset] + text.encode() + (tail if first == last else b"")
    for number in range(first + 1, last + 1):
        lines[number] = tail if number == last else b""
