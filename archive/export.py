"""Archives as Parquet, for pandas, DuckDB and the like: one row a record, and back again without loss."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archive.errors import ArchiveError
from archive.rows import finite
from archive.types import ArchivedTask, Record
from judge.types import Baselines, Verdict

if TYPE_CHECKING:
    from archive.store import Archive

_JSON_COLUMNS = ("software", "extra", "hardware", "phase_seconds")
"""Mappings are JSON texts: few readers of Parquet take its map type."""
_RECORD_COLUMNS = tuple(name for name in Record.model_fields if name not in ("verdict", "created_at"))
_VERDICT_COLUMNS = tuple(name for name in Verdict.model_fields if name != "baselines")
_BASELINES = tuple(Baselines.model_fields)
_BATCH = 1000  # records in memory at a time when reading


def to_parquet(archive: Archive, path: Path | str) -> int:
    """Write every record, the oldest first; returns how many. The file appears whole or not at all.

    The column ``record`` holds each record as JSON and is, with the columns ``task_*``, what ``from_parquet`` reads.
    The others repeat its fields for queries: those of the record, of its verdict, and ``baseline_*_ms``. Mappings are
    JSON texts. ``task_*`` is null where the archive does not hold the task.

    Raises ArchiveError when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    tasks = archive.tasks()
    schema, written = _schema(), 0

    def write(partial: Path) -> None:
        nonlocal written
        with pq.ParquetWriter(partial, schema, compression="zstd") as writer:
            for batch in batched(archive.iterate(), _BATCH):
                writer.write_table(pa.Table.from_pylist([_to_row(record, tasks) for record in batch], schema=schema))
                written += len(batch)

    write_whole(Path(path), write)
    return written


def write_whole(target: Path, write: Callable[[Path], None]) -> None:
    """Have a file written under another name and moved into place: it appears whole or not at all.

    Raises ArchiveError when it cannot be written.
    """
    partial = target.with_name(target.name + ".partial")
    try:
        write(partial)
        partial.replace(target)
    except OSError as error:
        raise ArchiveError(f"{target}: cannot be written ({error}); check the folder and its free space") from error
    finally:
        partial.unlink(missing_ok=True)


def batched(items: Iterable[Record], size: int) -> Iterator[list[Record]]:
    """Lists of ``size`` items, the last one shorter; none for no items."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


def from_parquet(archive: Archive, path: Path | str) -> int:
    """Add the records of a file written by ``to_parquet``; returns how many were new.

    Raises ArchiveError when the file cannot be read or holds no records.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    added = 0
    try:
        with pq.ParquetFile(path) as file:
            has_tasks = "task_extra" in file.schema_arrow.names
            columns = ["record", *(("task_level", "task_source", "task_shapes", "task_extra") if has_tasks else ())]
            for batch in file.iter_batches(_BATCH, columns=columns):
                rows = batch.to_pylist()
                records = [Record.model_validate_json(row["record"]) for row in rows]
                if has_tasks:
                    archive.add_tasks(_tasks_of(records, rows))
                added += archive.add_many(records)
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArchiveError(f"{path}: not a Parquet file of records ({reason}); write one with to_parquet") from error
    return added


def _tasks_of(records: list[Record], rows: list[dict[str, Any]]) -> list[ArchivedTask]:
    found = {
        record.task_id: ArchivedTask(
            task_id=record.task_id,
            name=record.task_name,
            level=row["task_level"],
            source=row["task_source"],
            shapes=json.loads(row["task_shapes"]),
            extra=json.loads(row["task_extra"]),
        )
        for record, row in zip(records, rows, strict=True)
        if row["task_source"] is not None
    }
    return list(found.values())


def _to_row(record: Record, tasks: dict[str, ArchivedTask]) -> dict[str, Any]:
    dump = record.model_dump(mode="json", exclude={"created_at"})
    verdict = dump.pop("verdict")
    baselines = verdict.pop("baselines")
    row = {**dump, **verdict, **{f"baseline_{name}_ms": baselines[name] for name in _BASELINES}}
    row |= {name: json.dumps(finite(row[name]), ensure_ascii=False) for name in _JSON_COLUMNS}
    task = tasks.get(record.task_id)
    row["task_level"] = task.level if task else None
    row["task_source"] = task.source if task else None
    row["task_shapes"] = json.dumps(task.shapes, ensure_ascii=False) if task else None
    row["task_extra"] = json.dumps(task.extra, ensure_ascii=False) if task else None
    whole = json.dumps(finite(record.model_dump(mode="json")), ensure_ascii=False)
    return {**row, "created_at": record.created_at, "record": whole}


_TYPES = {
    "int64": ("step", "policy_version", "prompt_tokens", "completion_tokens", "task_level"),
    "double": ("cost_usd", "speedup", "speedup_low", "speedup_high", "candidate_ms", "max_error", "tolerance"),
}


def _schema() -> Any:
    import pyarrow as pa

    texts = pa.list_(pa.string())
    types = {name: pa.type_for_alias(kind) for kind, names in _TYPES.items() for name in names}
    types |= {"parents": texts, "flags": texts, "sandbox": texts}
    types |= {f"baseline_{name}_ms": pa.float64() for name in _BASELINES}
    task = ("task_level", "task_source", "task_shapes", "task_extra")
    baselines = tuple(f"baseline_{name}_ms" for name in _BASELINES)
    columns = (*_RECORD_COLUMNS, *_VERDICT_COLUMNS, *baselines, *task)
    return pa.schema(
        [
            *((name, types.get(name, pa.string())) for name in columns),
            ("created_at", pa.timestamp("us", tz="UTC")),
            ("record", pa.string()),
        ]
    )
