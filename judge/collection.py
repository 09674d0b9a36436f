"""Collections of candidates that others have published, read as data: nothing of them runs here.

    read_collection("kernels/")                  # a folder: task.py, and every other .py file is a candidate
    read_collection("h100.json")                 # CUDA-L1: one JSON object a line
    read_collection("level_1.parquet")           # the AI CUDA Engineer's archive

CUDA-L1 gives level_id, task_id, ref_code, custom_code and score_* (its first release: {"1": [...]} by level, with
"score" as text). The archive's 19 columns are ENGINEER_COLUMNS; its kernels are one .cu text with a pybind module whose
``forward`` takes the place of ``fn`` in the functional reference, and were built with -O3 --use_fast_math.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from judge.errors import CollectionError
from judge.types import Candidate
from tasks.errors import TaskError
from tasks.loader import load_task, parse_task
from tasks.types import Task

ENGINEER_COLUMNS = (
    "Op_Name", "Level_ID", "Task_ID", "Kernel_Name", "CUDA_Runtime", "PyTorch_Native_Runtime",
    "PyTorch_Compile_Runtime", "CUDA_Speedup_Native", "CUDA_Speedup_Compile", "CUDA_Code", "PyTorch_Code_Module",
    "PyTorch_Code_Functional", "Correct", "Max_Diff", "Error", "NCU_Profile", "Torch_Profile", "Clang_Tidy",
    "__index_level_0__",
)  # fmt: skip
_ENGINEER_USED = (
    "Op_Name", "Level_ID", "Task_ID", "Kernel_Name", "CUDA_Speedup_Native", "CUDA_Speedup_Compile", "CUDA_Code",
    "PyTorch_Code_Module", "PyTorch_Code_Functional", "Correct",
)  # fmt: skip
_L1_SCORES = {
    "score_default": "eager",
    "score": "eager",
    "score_torch_compile_default": "compile",
    "score_torch_compile_reduce_overhead": "reduce_overhead",
    "score_cuda_graph": "cuda_graph",
}
_NO_CODE = frozenset({"", "none", "null", "nan"})


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One line of a collection: a candidate, or the fact that there is none."""

    number: int
    """From 0, in the collection's order."""
    name: str
    task: Task | None
    """None when the reference cannot be used; ``reason`` says why."""
    candidate: Candidate | None
    reason: str = ""
    """Why it cannot be judged."""
    published: Mapping[str, float] = field(default_factory=dict)
    """Speedups as published, by kind of baseline (judge.types.Baselines)."""
    published_correct: bool | None = None

    @property
    def entry_id(self) -> str:
        """Number and content: the same line of the same collection has the same id."""
        parts = (self.name, self.task.source if self.task else "", self.candidate.code if self.candidate else "")
        return f"{self.number}-{hashlib.sha256(chr(0).join(parts).encode(errors='replace')).hexdigest()[:16]}"


def read_collection(path: Path | str, task: Task | None = None) -> list[Entry]:
    """The entries of a collection, in its order.

    Args:
        task: for a folder without task.py: what its files are candidates for.

    Raises:
        CollectionError: nothing there, or none of the layouts.
        TaskError: the task of a folder cannot be used.
    """
    path = Path(path)
    try:
        if path.is_dir():
            entries = list(_folder(path, task))
        elif not path.is_file():
            raise CollectionError(f"{path}: no such file or folder")
        elif _is_parquet(path):
            entries = list(_engineer(path))
        else:
            entries = list(_cuda_l1(path))
    except OSError as error:
        raise CollectionError(f"{path}: cannot be read: {error.strerror or error}") from None
    if not entries:
        raise CollectionError(f"{path}: holds no candidates")
    return entries


def code_of(value: Any) -> str | None:
    """The text of a candidate; None for null, nothing, and the words that stand for nothing."""
    if not isinstance(value, str) or value.strip().lower() in _NO_CODE:
        return None
    return value


def _folder(path: Path, given: Task | None) -> Iterator[Entry]:
    folders = [path] if given or (path / "task.py").is_file() else sorted(p.parent for p in path.glob("*/task.py"))
    if not folders:
        raise CollectionError(f"{path}: holds no task.py, nor does a folder in it; name the task with --task")
    number = 0
    for folder in folders:
        task = given or load_task(folder / "task.py")
        for file in sorted(folder.glob("*.py")):
            if file.name == "task.py":
                continue
            name = file.stem if len(folders) == 1 else f"{folder.name}/{file.stem}"
            try:
                code = code_of(file.read_text(encoding="utf-8"))
            except UnicodeDecodeError:
                yield Entry(number=number, name=name, task=task, candidate=None, reason="not UTF-8")
            else:
                yield _entry(number, name, task, code)
            number += 1


def _cuda_l1(path: Path) -> Iterator[Entry]:
    for number, (where, row) in enumerate(_json_rows(path)):
        missing = [key for key in ("task_id", "ref_code", "custom_code") if key not in row]
        if missing:
            raise CollectionError(f"{path}: {where} has no {missing[0]}; CUDA-L1's layout is expected")
        name = f"level{row.get('level_id', '')}_{row['task_id']}"
        published = {kind: score for key, kind in _L1_SCORES.items() if (score := _number(row.get(key))) is not None}
        task, reason = _task(row["ref_code"], name, row.get("level_id"))
        entry = _entry(number, name, task, code_of(row["custom_code"]), reason)
        yield replace(entry, published=published, published_correct=True if entry.candidate else None)


def _json_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """(where, object) of JSON lines, of one list, or of lists by level."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CollectionError(f"{path}: neither a folder, nor Parquet, nor JSON in UTF-8") from None
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                try:
                    yield f"line {number}", _object(json.loads(line), path, f"line {number}")
                except (ValueError, RecursionError) as error:
                    raise CollectionError(
                        f"{path}:{number}: not JSON ({error}); one object a line is expected"
                    ) from None
        return
    if isinstance(whole, dict) and "ref_code" in whole:
        yield "line 1", whole
        return
    levels = whole if isinstance(whole, dict) else {None: whole}
    for level, rows in levels.items():
        if not isinstance(rows, list):
            raise CollectionError(f"{path}: neither objects, one a line, nor lists of them by level")
        for number, row in enumerate(rows):
            where = f"item {number}" if level is None else f"item {number} of level {level}"
            yield where, {**({"level_id": level} if level is not None else {}), **_object(row, path, where)}


def _object(value: Any, path: Path, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CollectionError(f"{path}: {where} is no JSON object")
    return value


def _engineer(path: Path) -> Iterator[Entry]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            missing = [name for name in _ENGINEER_USED if name not in file.schema_arrow.names]
            if missing:
                raise CollectionError(f"{path}: has no column {missing[0]}; the AI CUDA Engineer's layout is expected")
            number = 0
            for batch in file.iter_batches(256, columns=list(_ENGINEER_USED)):
                for row in batch.to_pylist():
                    yield _engineer_entry(number, row)
                    number += 1
    except (pa.ArrowException, ValueError) as error:
        raise CollectionError(
            f"{path}: not a Parquet file that can be read ({' '.join(str(error).split())[:200]})"
        ) from None


def _engineer_entry(number: int, row: dict[str, Any]) -> Entry:
    level, task_id = row["Level_ID"], row["Task_ID"]
    name = f"level{level}_{task_id}/{row['Kernel_Name'] or row['Op_Name']}"
    task, reason = _task(row["PyTorch_Code_Module"], f"level{level}_{task_id}", level)
    kernel, functional = code_of(row["CUDA_Code"]), code_of(row["PyTorch_Code_Functional"])
    if kernel and not functional:
        reason = reason or "its row has no functional reference, which says how the kernel is called"
    entry = _entry(
        number, name, task, engineer_candidate(kernel, functional) if kernel and functional else None, reason
    )
    columns = {"eager": "CUDA_Speedup_Native", "compile": "CUDA_Speedup_Compile"}
    published = {kind: score for kind, column in columns.items() if (score := _number(row[column])) is not None}
    correct = row["Correct"] if isinstance(row["Correct"], bool) else None
    return replace(entry, published=published, published_correct=correct)


def engineer_candidate(kernel: str, functional: str) -> str:
    """A kernel of the AI CUDA Engineer as a candidate: the functional reference with the kernel as its ``fn``.

    Text without a ``__global__`` function is built as C++.
    """
    kind = "cuda" if "__global__" in kernel else "cpp"
    sources = f'cpp_sources="", cuda_sources={kernel!r}' if kind == "cuda" else f"cpp_sources={kernel!r}"
    flags = 'extra_cuda_cflags=["-O3", "--use_fast_math"]' if kind == "cuda" else 'extra_cflags=["-O3"]'
    return (
        f"{functional}\n\nfrom torch.utils.cpp_extension import load_inline as _load_inline\n\n"
        f'_built = _load_inline(name="published", {sources}, {flags})\n\n\n'
        "class ModelNew(Model):\n"
        "    def forward(self, *inputs):\n"
        "        return Model.forward(self, *inputs, fn=_built.forward)\n"
    )


def _entry(number: int, name: str, task: Task | None, code: str | None, reason: str = "") -> Entry:
    candidate = None if code is None else Candidate(code=code)
    if code is None and not reason:
        reason = "no candidate was published"
    return Entry(number=number, name=name, task=task, candidate=candidate, reason=reason)


def _task(source: Any, name: str, level: Any) -> tuple[Task | None, str]:
    """The task, or None and why."""
    text = code_of(source)
    if text is None:
        return None, "its reference is empty"
    try:
        task = replace(parse_task(text), name=name)
    except TaskError as error:
        return None, f"its reference cannot be used: {error}"
    return (replace(task, level=int(level)) if str(level).isdigit() and int(level) > 0 else task), ""


def _number(value: Any) -> float | None:
    """A speedup, published as number or text; None for what is none."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) and number > 0 else None


def _is_parquet(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == b"PAR1" or path.suffix == ".parquet"
