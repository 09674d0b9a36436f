"""Records as rows of the database, and back."""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

from archive.blobs import BlobStore
from archive.errors import ArchiveError
from archive.types import ArchivedTask, Record
from judge.types import Verdict

BLOB_COLUMNS = ("code", "analysis", "completion", "prompt", "extra")
INLINE_BYTES = 32 * 1024
"""Texts up to this size stay in the row; larger ones become blobs where the archive has a place for them."""
_VERDICT_FIELDS = ("status", "speedup", "speedup_low")
_PLAIN = tuple(name for name in Record.model_fields if name not in ("parents", "verdict", "created_at", "extra"))


def to_row(record: Record, blobs: BlobStore | None) -> dict[str, Any]:
    """A record's row; its large texts are in ``blobs`` when this returns."""
    row = {
        **{name: getattr(record, name) for name in _PLAIN},
        **{name: getattr(record.verdict, name) for name in _VERDICT_FIELDS},
        "parents": list(record.parents),
        "verdict": finite(record.verdict.model_dump(mode="json")),
        "extra": json.dumps(record.extra, ensure_ascii=False) if record.extra else "",
        "created_at": record.created_at.isoformat(),
        "blobs": {},
    }
    if blobs is not None:
        for name in BLOB_COLUMNS:
            if len(row[name]) > INLINE_BYTES // 4 and len(data := row[name].encode()) > INLINE_BYTES:
                row["blobs"][name], row[name] = blobs.put(data), ""
    return row


def from_row(row: Any, blobs: BlobStore | None) -> Record:
    """The record of a row. Raises ArchiveError when a blob that it names is missing or damaged."""
    texts = {name: row[name] for name in BLOB_COLUMNS}
    for name, digest in (row["blobs"] or {}).items():
        if blobs is None:
            raise ArchiveError(
                f"record {row['record_id']}: its {name} is a blob, and this archive names no place of any"
            )
        texts[name] = blobs.get(digest).decode()
    return Record(
        **{**{name: row[name] for name in _PLAIN}, **texts, "extra": json.loads(texts["extra"] or "{}")},
        parents=tuple(row["parents"]),
        verdict=Verdict.model_validate(row["verdict"]),
        created_at=datetime.fromisoformat(row["created_at"]),
    )


def task_to_row(task: ArchivedTask) -> dict[str, Any]:
    """A task's row."""
    return task.model_dump(mode="json")


def task_from_row(row: Any) -> ArchivedTask:
    """The task of a row."""
    return ArchivedTask.model_validate(dict(row))


def finite(value: Any) -> Any:
    """A dump whose infinities and NaNs are text, which JSON lacks (PostgreSQL refuses them); Verdict reads it back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value
