"""Looking after archives: merging them, checking them, and removing what nothing refers to."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from archive import schema
from archive.errors import ArchiveError
from archive.export import batched
from archive.rows import from_row
from archive.similarity import SCHEME, code_hash
from archive.store import Archive

MIN_AGE_HOURS = 1.0
"""A blob younger than this may belong to a record that is being written."""
_BATCH = 500


@dataclass(frozen=True, kw_only=True)
class Collected:
    """What ``collect`` removed, or would remove."""

    blobs: int
    bytes: int
    partials: int
    """Files that killed writers left."""
    vectors: int
    """Cached vectors of code that no record has."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """What ``verify`` found."""

    records: int
    blobs: int
    problems: tuple[str, ...]
    """One line each; empty for an archive that is whole."""
    strangers: int
    """Parents that are in no record here: fine for an archive that is a part of another."""


def merge(target: Archive, source: Archive) -> int:
    """Add the records and tasks of another archive; returns how many records were new.

    Records that are there keep their place. Can be repeated, and goes on where an interrupted one stopped.
    """
    target.add_tasks(source.tasks().values())
    return sum(target.add_many(batch) for batch in batched(source.iterate(_BATCH), _BATCH))


def collect(archive: Archive, *, min_age_hours: float = MIN_AGE_HOURS, dry_run: bool = False) -> Collected:
    """Remove blobs that no record names and that are older than ``min_age_hours``, leftovers of killed writers, and
    cached vectors without a record; give the space back to the disk. Safe while others write.
    """
    store = archive.blobs
    unused, size, partials = [], 0, 0
    if store is not None:
        # The blobs first: one that is written after this look is not in the list, whatever its record's fate.
        before = datetime.now(UTC) - timedelta(hours=min_age_hours)
        old = {name: length for name, written, length in store.names() if written < before}
        unused = sorted(set(old) - set(_named_blobs(archive)))
        size = sum(old[name] for name in unused)
        if not dry_run:
            for name in unused:
                if (written := store.written(name)) is not None and written < before:  # not put again since the look
                    store.remove(name)
            partials = store.remove_partials(min_age_hours * 3600)
    vectors = _unused_vectors(archive)
    if not dry_run:
        with archive.connection(write=True) as connection:
            for name in vectors:
                connection.execute(sa.delete(schema.code_vectors).where(schema.code_vectors.c.code_hash == name))
        _compact(archive)
    return Collected(blobs=len(unused), bytes=size, partials=partials, vectors=len(vectors))


def verify(archive: Archive) -> Check:
    """Read everything: the database's own check, each record, the copies of its verdict's fields, each blob's hash."""
    problems = _database_problems(archive)
    ids: set[str] = set()
    parents: set[str] = set()
    blobs: set[str] = set()
    number = 0
    for row in _rows(archive):
        number += 1
        blobs.update((row["blobs"] or {}).values())
        try:
            record = from_row(row, archive.blobs)
        except (ArchiveError, ValueError, TypeError) as error:
            problems.append(f"record {row['record_id']}: cannot be read: {_line(error)}")
            continue
        verdict = record.verdict
        copies = (str(verdict.status), verdict.speedup, verdict.speedup_low)
        if copies != (row["status"], row["speedup"], row["speedup_low"]):
            problems.append(f"record {record.record_id}: its status and speedup differ from its verdict's")
        if record.record_id in record.parents:
            problems.append(f"record {record.record_id}: is its own parent")
        ids.add(record.record_id)
        parents.update(record.parents)
    return Check(records=number, blobs=len(blobs), problems=tuple(problems), strangers=len(parents - ids))


def _rows(archive: Archive) -> Iterator[sa.RowMapping]:
    after = 0
    while True:
        table = schema.records
        query = sa.select(table).where(table.c.position > after).order_by(table.c.position).limit(_BATCH)
        with archive.connection() as connection:
            rows = connection.execute(query).mappings().all()
        yield from rows
        if len(rows) < _BATCH:
            return
        after = rows[-1]["position"]


def _named_blobs(archive: Archive) -> Iterator[str]:
    with archive.connection() as connection:
        for named in connection.execute(sa.select(schema.records.c.blobs)).scalars():
            yield from (named or {}).values()


def _unused_vectors(archive: Archive) -> list[str]:
    with archive.connection() as connection:
        kept = set(connection.execute(sa.select(schema.code_vectors.c.code_hash)).scalars())
        stale = set(
            connection.execute(
                sa.select(schema.code_vectors.c.code_hash).where(schema.code_vectors.c.scheme != SCHEME)
            ).scalars()
        )
    used = {code_hash(record.code) for record in archive.iterate()} if kept else set()
    return sorted((kept - used) | stale)


def _database_problems(archive: Archive) -> list[str]:
    if archive.url.get_backend_name() != "sqlite":
        return []
    with archive.connection() as connection:
        lines = connection.exec_driver_sql("PRAGMA integrity_check").scalars().all()
    return [] if lines == ["ok"] else [f"the database: {_line(line)}" for line in lines]


def _compact(archive: Archive) -> None:
    if archive.url.get_backend_name() != "sqlite":
        return
    # Outside of any transaction, which VACUUM asks for; another writer is waited for, as everywhere.
    connection = sqlite3.connect(archive.url.database or "", timeout=30, isolation_level=None)
    try:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.OperationalError as error:
        raise ArchiveError(f"{archive.where}: its space could not be given back ({_line(error)}); try later") from error
    finally:
        connection.close()


def _line(error: object) -> str:
    return " ".join(str(error).split())[:200]
