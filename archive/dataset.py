"""Archives as datasets that others can load: Parquet files with a card, in our schema or in the published one.

The published schema is that of the AI CUDA Engineer Archive (Sakana AI, 2025): 19 columns, one file a level. What it
has no room for (lineage, intervals, isolation) is only in ours. Importing keeps every column of a published row, and
exporting it again gives the same row.

A published speedup is somebody's claim. An imported record says so: its status is ``judge_error``, it is flagged
``CLAIM``, and no reward, ranking or exemplar is made of it until the judge has seen the kernel.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archive.card import full_card, published_card
from archive.errors import ArchiveError
from archive.export import from_parquet, to_parquet, write_whole
from archive.types import ArchivedTask, Record
from judge.types import Baselines, Status, Verdict

if TYPE_CHECKING:
    from archive.store import Archive

PUBLISHED_COLUMNS = {
    "Op_Name": "string",
    "Level_ID": "int64",
    "Task_ID": "int64",
    "Kernel_Name": "string",
    "CUDA_Runtime": "double",
    "PyTorch_Native_Runtime": "double",
    "PyTorch_Compile_Runtime": "double",
    "CUDA_Speedup_Native": "double",
    "CUDA_Speedup_Compile": "double",
    "CUDA_Code": "string",
    "PyTorch_Code_Module": "string",
    "PyTorch_Code_Functional": "string",
    "Correct": "bool",
    "Max_Diff": "double",
    "Error": "string",
    "NCU_Profile": "string",
    "Torch_Profile": "string",
    "Clang_Tidy": "string",
    "__index_level_0__": "int64",
}
"""Name -> Arrow type, in the published order. Runtimes are milliseconds; missing values are null."""
CLAIM = "published claim, not judged here"
FULL_FILE = "records.parquet"
_PUBLISHED = "published"
_PUBLISHED_AT = datetime(2025, 2, 20, tzinfo=UTC)
"""When the dataset came out: its rows have no dates of their own."""
_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Written:
    """What an export wrote."""

    folder: Path
    files: tuple[Path, ...]
    records: int


def export_full(archive: Archive, out: Path) -> Written:
    """Write every record with all its fields, to a .parquet file or into a folder, and README.md beside it."""
    target = out if out.suffix == ".parquet" else out / FULL_FILE
    _make(target.parent)
    number = to_parquet(archive, target)
    _write_card(target.parent, full_card(archive, target.name))
    return Written(folder=target.parent, files=(target,), records=number)


def export_published(archive: Archive, folder: Path) -> Written:
    """Write ``level_N.parquet`` files in the 19 published columns, and README.md, into a folder.

    Raises ArchiveError when they cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, pa.type_for_alias(kind)) for name, kind in PUBLISHED_COLUMNS.items()])
    tasks = archive.tasks()
    numbers = _task_numbers(archive, tasks)
    levels = sorted({level for level, _ in numbers.values()})
    _make(folder)
    files, total = [], 0
    for level in levels:

        def write(partial: Path, level: int = level) -> None:
            nonlocal total
            members = (record for record in archive.iterate() if numbers[record.task_id][0] == level)
            rows = (
                _published_row(record, tasks.get(record.task_id), numbers[record.task_id], place)
                for place, record in enumerate(members)
            )
            with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
                while batch := list(islice(rows, _BATCH)):
                    writer.write_table(pa.Table.from_pylist(batch, schema=schema))
                    total += len(batch)

        files.append(folder / f"level_{level}.parquet")
        write_whole(files[-1], write)
    _write_card(folder, published_card(archive, [path.name for path in files]))
    return Written(folder=folder, files=tuple(files), records=total)


def import_dataset(archive: Archive, source: Path) -> int:
    """Add the records of a Parquet file, or of every one in a folder, of either schema; returns how many were new.

    Raises ArchiveError when there is none, or one has neither schema.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    files = sorted(source.glob("*.parquet")) if source.is_dir() else [source]
    if not files:
        raise ArchiveError(f"{source}: holds no .parquet file; give a dataset's folder or file")
    added = 0
    for path in files:
        try:
            names = set(pq.read_schema(path).names)
        except (OSError, pa.ArrowException) as error:
            reason = " ".join(str(error).split())[:200]
            raise ArchiveError(f"{path}: not a Parquet file that can be read ({reason})") from error
        if "record" in names:
            added += from_parquet(archive, path)
        elif missing := sorted(set(PUBLISHED_COLUMNS) - {"__index_level_0__"} - names):
            raise ArchiveError(
                f"{path}: neither warpsmith's columns nor the published ones (no {', '.join(missing[:3])}); "
                "give a file that `warpsmith archive export` or the AI CUDA Engineer wrote"
            )
        else:
            added += _import_published(archive, path)
    return added


def _import_published(archive: Archive, path: Path) -> int:
    import pyarrow as pa
    import pyarrow.parquet as pq

    added = 0
    try:
        with pq.ParquetFile(path) as file:
            names = [name for name in PUBLISHED_COLUMNS if name in file.schema_arrow.names]
            for batch in file.iter_batches(_BATCH, columns=names):
                rows = batch.to_pylist()
                archive.add_tasks({task.task_id: task for task in map(_task_of, rows)}.values())
                added += archive.add_many(_record_of(row) for row in rows)
    except (OSError, pa.ArrowException, ValueError, TypeError) as error:
        raise ArchiveError(f"{path}: not the published columns ({' '.join(str(error).split())[:200]})") from error
    return added


def _task_of(row: dict[str, Any]) -> ArchivedTask:
    source = row["PyTorch_Code_Module"] or ""
    functional = row["PyTorch_Code_Functional"]
    return ArchivedTask(
        task_id=_task_id(row),
        name=row["Op_Name"] or "unnamed",
        level=row["Level_ID"] or 0,
        source=source,
        extra={} if functional is None else {"functional": functional},
    )


def _task_id(row: dict[str, Any]) -> str:
    """As Task.task_id has it, where there is a source: published kernels meet our own of the same task."""
    text = row["PyTorch_Code_Module"] or f"{row['Level_ID']}/{row['Task_ID']}/{row['Op_Name']}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _record_of(row: dict[str, Any]) -> Record:
    # All columns but the code, which the record has itself: what a row said can be told again to the letter.
    kept = {name: value for name, value in row.items() if name != "CUDA_Code"}
    told = json.dumps(kept, ensure_ascii=False, sort_keys=True)
    code = row["CUDA_Code"]
    if row["Correct"]:
        ratio = row["CUDA_Speedup_Native"]
        claim = "correct" if ratio is None else f"correct, {ratio:.2f}x against eager PyTorch"
    else:
        claim = " ".join((row["Error"] or "incorrect").split())[:200]
    verdict = Verdict(
        status=Status.JUDGE_ERROR,
        flags=(CLAIM,),
        candidate_ms=row["CUDA_Runtime"],
        baselines=Baselines(eager=row["PyTorch_Native_Runtime"], compile=row["PyTorch_Compile_Runtime"]),
        max_error=row["Max_Diff"],
        message=f"not judged here; published as: {claim}",
    )
    return Record(
        record_id=hashlib.sha256(f"{told}\0{code}".encode(errors="replace")).hexdigest()[:32],
        run_id="ai-cuda-engineer",
        task_name=row["Op_Name"] or "unnamed",
        task_id=_task_id(row),
        source="ai-cuda-engineer",
        operator="published",
        code=code or "",
        verdict=verdict,
        extra={_PUBLISHED: told} | ({"no code": "null"} if code is None else {}),
        created_at=_PUBLISHED_AT,
    )


def _published_row(record: Record, task: ArchivedTask | None, number: tuple[int, int], place: int) -> dict[str, Any]:
    if _PUBLISHED in record.extra:
        row = dict.fromkeys(PUBLISHED_COLUMNS) | json.loads(record.extra[_PUBLISHED])
        return row | {"CUDA_Code": None if "no code" in record.extra else record.code}
    verdict = record.verdict
    runtime, eager, compiled = verdict.candidate_ms, verdict.baselines.eager, verdict.baselines.compile
    correct = verdict.is_correct
    return {
        "Op_Name": record.task_name,
        "Level_ID": number[0],
        "Task_ID": number[1],
        "Kernel_Name": f"{record.task_name}_{record.record_id[:12]}",
        "CUDA_Runtime": runtime,
        "PyTorch_Native_Runtime": eager,
        "PyTorch_Compile_Runtime": compiled,
        "CUDA_Speedup_Native": eager / runtime if correct and eager and runtime else None,
        "CUDA_Speedup_Compile": compiled / runtime if correct and compiled and runtime else None,
        "CUDA_Code": record.code,
        "PyTorch_Code_Module": task.source if task else None,
        "PyTorch_Code_Functional": task.extra.get("functional") if task else None,
        "Correct": correct,
        "Max_Diff": verdict.max_error,
        "Error": None if correct else (verdict.message or str(verdict.status)),
        "NCU_Profile": record.extra.get("ncu_profile"),
        "Torch_Profile": record.extra.get("torch_profile"),
        "Clang_Tidy": record.extra.get("clang_tidy"),
        "__index_level_0__": place,
    }


def _task_numbers(archive: Archive, tasks: dict[str, ArchivedTask]) -> dict[str, tuple[int, int]]:
    """task_id -> (level, number within the level, from 1 by name): the published schema counts its tasks."""
    named = {}
    for task_id in archive.status_counts():
        task = tasks.get(task_id)
        name = task.name if task else archive.records(task_id=task_id, limit=1)[0].task_name
        named[task_id] = (task.level if task else 0, name)
    numbers: dict[str, tuple[int, int]] = {}
    counts: dict[int, int] = {}
    for task_id, (level, _) in sorted(named.items(), key=lambda item: (*item[1], item[0])):
        counts[level] = counts.get(level, 0) + 1
        numbers[task_id] = (level, counts[level])
    return numbers


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArchiveError(f"{folder}: this folder cannot be made ({error.strerror}); give another one") from error


def _write_card(folder: Path, text: str) -> None:
    def write(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    write_whole(folder / "README.md", write)
