"""Archives as Parquet, for pandas, DuckDB and the like: one row a record, and back again without loss."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from archive.errors import ArchiveError
from archive.store import finite
from archive.types import Record

if TYPE_CHECKING:
    from archive.store import Archive

_RECORD_COLUMNS = tuple(name for name in Record.model_fields if name not in ("verdict", "created_at"))
_VERDICT_COLUMNS = ("status", "speedup", "speedup_low", "speedup_high", "candidate_ms", "message")
_BATCH = 1000  # records in memory at a time when reading


def to_parquet(archive: Archive, path: Path | str) -> int:
    """Write every record, the oldest first; returns how many. The file appears whole or not at all.

    The column ``record`` holds each record as JSON and is what ``from_parquet`` reads; the others repeat its fields
    (of the verdict: status, speedup, speedup_low, speedup_high, candidate_ms, message) for queries.

    Raises ArchiveError when the file cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    target = Path(path)
    records = archive.records()
    table = pa.Table.from_pylist([_to_row(record) for record in records], schema=_schema())
    partial = target.with_name(target.name + ".partial")
    try:
        pq.write_table(table, partial, compression="zstd")
        partial.replace(target)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise ArchiveError(f"{target}: cannot be written ({error}); check the folder and its free space") from error
    return len(records)


def from_parquet(archive: Archive, path: Path | str) -> int:
    """Add the records of a file written by ``to_parquet``; returns how many were new.

    Raises ArchiveError when the file cannot be read or holds no records.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    added = 0
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(_BATCH, columns=["record"]):
                added += archive.add_many(Record.model_validate_json(text) for text in batch["record"].to_pylist())
    except (OSError, KeyError, ValueError, pa.ArrowException) as error:
        reason = " ".join(str(error).split())[:200]
        raise ArchiveError(f"{path}: not a Parquet file of records ({reason}); write one with to_parquet") from error
    return added


def _to_row(record: Record) -> dict[str, Any]:
    shown = record.model_dump(mode="json", include=set(_RECORD_COLUMNS))
    verdict = record.verdict.model_dump(mode="json", include=set(_VERDICT_COLUMNS))
    whole = json.dumps(finite(record.model_dump(mode="json")), ensure_ascii=False)
    return {**shown, **verdict, "created_at": record.created_at, "record": whole}


def _schema() -> Any:
    import pyarrow as pa

    types = {"parents": pa.list_(pa.string()), "step": pa.int64(), "policy_version": pa.int64()}
    numbers = {"speedup", "speedup_low", "speedup_high", "candidate_ms"}
    return pa.schema(
        [
            *((name, types.get(name, pa.string())) for name in _RECORD_COLUMNS),
            *((name, pa.float64() if name in numbers else pa.string()) for name in _VERDICT_COLUMNS),
            ("created_at", pa.timestamp("us", tz="UTC")),
            ("record", pa.string()),
        ]
    )
