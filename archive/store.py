"""Where records are kept: SQLite by default, PostgreSQL by URL.

    archive = Archive("runs/cpu/archive.db")          # or "sqlite:////abs/path.db", "postgresql+psycopg://host/name"
    archive.add(record)                               # on disk when it returns
    archive.records(task_name="softmax", status="win")

Several processes may write to one archive at once. An Archive may be used from several threads, and after a fork too:
each process opens connections of its own, since a database connection must never cross a fork.

Texts above 32 KiB (prompts, answers, profiles) are kept once each as blobs, in ``archive.db.blobs`` beside an SQLite
file or at the place that ``blobs`` names; a PostgreSQL archive that was given no such place keeps them in its rows.

SQLite runs with a write-ahead log and ``synchronous=NORMAL``: a record that ``add`` has confirmed survives the death of
any process, also by SIGKILL; a power cut may take the last ones, but never corrupts the file.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from archive import schema
from archive.blobs import BlobStore
from archive.errors import ArchiveError
from archive.group import GroupCommit
from archive.rows import from_row, task_from_row, task_to_row, to_row
from archive.schema import meta as _meta
from archive.schema import records as _records
from archive.schema import tasks as _tasks
from archive.types import ArchivedTask, Record
from judge.types import Status

BUSY_SECONDS = 30.0
"""Longest wait for another process that is writing."""
_CHECKPOINT_PAGES = 8192
"""The log is copied into the database, which waits for the disk, when it is 32 MB long; SQLite's own is 4 MB."""


@dataclass(frozen=True, kw_only=True)
class Summary:
    """An archive at a glance."""

    counts: dict[tuple[str, str], int]
    """(source, status) -> number of records, sorted by key."""
    best: dict[str, Record]
    """task_id -> its best record, as Archive.best has it; tasks without a correct record are absent."""


class Archive:
    """The records of one database.

    Raises ArchiveError, in one line, from every method: a folder that cannot be made, a file that cannot be written or
    is no archive, an archive of another version, a full disk, a lock that lasts.
    """

    def __init__(self, url: str, *, blobs: str | None = None) -> None:
        """Open the archive, create it (with its folder) where there is none, migrate it where it is older.

        Args:
            url: an SQLAlchemy URL, or the path of an SQLite file.
            blobs: where large texts go, a folder or an fsspec URL such as "s3://bucket/kernels"; the archive remembers
                it. Left out: what it remembers, else a folder beside the SQLite file.
        """
        self.url = _parse_url(url)
        self.where = self.url.database or "memory" if self._is_sqlite else self.url.render_as_string()
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._foreign_engines: list[sa.Engine] = []
        self._group = GroupCommit(self._write_group)
        with self._refusals():
            if self._is_sqlite:
                Path(self.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            self._engine = self._new_engine()
            self._ensure_schema()
        if blobs is not None:
            self._remember_blobs(blobs)

    def add(self, record: Record) -> bool:
        """Keep a record; durable when this returns. False when its record_id was there: then nothing changes."""
        (row,) = self._rows([record])
        self._engine_of_this_process()  # after a fork: locks of our own
        return self._group.add(row)

    def add_many(self, records: Iterable[Record]) -> int:
        """Keep records, all of them or none; returns how many were new."""
        return self.insert_if_absent(_records, self._rows(records), ("record_id",))

    def _rows(self, records: Iterable[Record]) -> list[dict[str, Any]]:
        rows = [to_row(record, self.blobs) for record in records]
        if not self._is_sqlite:  # PostgreSQL has no NUL in a text; models do write it
            rows = [{k: v.replace("\0", "\ufffd") if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        return rows

    def _write_group(self, rows: Sequence[dict[str, Any]]) -> list[bool]:
        """One transaction; says of each row whether it was new."""
        if len(rows) == 1:
            return [self.insert_if_absent(_records, list(rows), ("record_id",)) == 1]
        ids = [row["record_id"] for row in rows]
        with self.connection(write=True) as connection:
            known = set(
                connection.execute(sa.select(_records.c.record_id).where(_records.c.record_id.in_(ids))).scalars()
            )
            new = [i not in known and i not in ids[:number] for number, i in enumerate(ids)]
            insert = _insert_if_absent(connection.dialect.name, _records, ("record_id",))
            if fresh := [row for row, is_new in zip(rows, new, strict=True) if is_new]:
                connection.execute(insert, fresh)
        return new

    def insert_if_absent(self, table: sa.Table, rows: list[dict[str, Any]], key: tuple[str, ...]) -> int:
        """Add rows whose key is not there, all in one transaction; returns how many were new."""
        if not rows:
            return 0
        with self.connection(write=True) as connection:
            insert = _insert_if_absent(connection.dialect.name, table, key)
            if self._is_sqlite:
                return connection.execute(insert, rows).rowcount
            # PostgreSQL's driver does not count the rows of several statements; it gives back what it inserted.
            return len(connection.execute(insert.returning(*(table.c[name] for name in key)), rows).all())

    def add_tasks(self, tasks: Iterable[ArchivedTask]) -> None:
        """Keep tasks beside the records; those that are there already stay as they are."""
        rows = [task_to_row(task) for task in tasks]
        if not self._is_sqlite:
            rows = [{k: v.replace("\0", "\ufffd") if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        self.insert_if_absent(_tasks, rows, ("task_id",))

    def tasks(self) -> dict[str, ArchivedTask]:
        """task_id -> the task, for those that were kept."""
        with self.connection() as connection:
            rows = connection.execute(sa.select(_tasks).order_by(_tasks.c.level, _tasks.c.name)).mappings().all()
        return {row["task_id"]: task_from_row(row) for row in rows}

    def get(self, record_id: str) -> Record | None:
        """The record of this id."""
        found = self._select(sa.select(_records).where(_records.c.record_id == record_id))
        return found[0] if found else None

    def records(
        self,
        *,
        task_id: str | None = None,
        task_name: str | None = None,
        run_id: str | None = None,
        source: str | None = None,
        status: str | None = None,
        step: int | None = None,
        limit: int | None = None,
    ) -> list[Record]:
        """Records that match every given filter, the oldest first; ``limit`` keeps the first so many."""
        filters = _filters(task_id=task_id, task_name=task_name, run_id=run_id, source=source, status=status, step=step)
        return self._select(sa.select(_records).where(*filters).order_by(_records.c.position).limit(limit))

    def iterate(self, batch: int = 500, *, after: int = 0) -> Iterator[Record]:
        """Every record, the oldest first, ``batch`` of them in memory at a time; those added meanwhile too."""
        while True:
            query = sa.select(_records).where(_records.c.position > after).order_by(_records.c.position).limit(batch)
            with self.connection() as connection:
                rows = connection.execute(query).mappings().all()
            for row in rows:
                yield from_row(row, self.blobs)
            if len(rows) < batch:
                return
            after = rows[-1]["position"]

    def ids(self, prefix: str, limit: int = 20) -> list[str]:
        """record_ids that begin so, the oldest first."""
        wanted = _records.c.record_id.startswith(prefix, autoescape=True)
        query = sa.select(_records.c.record_id).where(wanted).order_by(_records.c.position).limit(limit)
        with self.connection() as connection:
            return list(connection.execute(query).scalars())

    def count(
        self,
        *,
        task_id: str | None = None,
        task_name: str | None = None,
        run_id: str | None = None,
        source: str | None = None,
        status: str | None = None,
        step: int | None = None,
    ) -> int:
        """How many records match every given filter."""
        filters = _filters(task_id=task_id, task_name=task_name, run_id=run_id, source=source, status=status, step=step)
        with self.connection() as connection:
            return connection.execute(sa.select(sa.func.count()).select_from(_records).where(*filters)).scalar_one()

    def best(self, task_id: str, *, run_id: str | None = None) -> Record | None:
        """The win with the highest lower bound of its speedup; without a win, the correct record with the highest
        speedup. The oldest of equals."""
        for status, column in ((Status.WIN, _records.c.speedup_low), (Status.CORRECT, _records.c.speedup)):
            filters = _filters(task_id=task_id, run_id=run_id, status=status)
            order = (sa.func.coalesce(column, 0.0).desc(), _records.c.position)
            if found := self._select(sa.select(_records).where(*filters).order_by(*order).limit(1)):
                return found[0]
        return None

    def summary(self, run_id: str | None = None) -> Summary:
        """Counts by source and status, and the best record of each task; of one run, or of all."""
        key = (_records.c.source, _records.c.status)
        filters = _filters(run_id=run_id)
        with self.connection() as connection:
            counts = connection.execute(
                sa.select(*key, sa.func.count()).where(*filters).group_by(*key).order_by(*key)
            ).all()
            first = sa.func.min(_records.c.position)
            tasks = connection.execute(
                sa.select(_records.c.task_id).where(*filters).group_by(_records.c.task_id).order_by(first)
            ).scalars()
            task_ids = tasks.all()
        bests = {task_id: self.best(task_id, run_id=run_id) for task_id in task_ids}
        return Summary(
            counts={(source, status): number for source, status, number in counts},
            best={task_id: record for task_id, record in bests.items() if record is not None},
        )

    def status_counts(self) -> dict[str, Counter[str]]:
        """task_id -> how many records have each status; tasks in the order of their first record."""
        first = sa.func.min(_records.c.position)
        query = sa.select(_records.c.task_id, _records.c.status, sa.func.count())
        with self.connection() as connection:
            rows = connection.execute(query.group_by(_records.c.task_id, _records.c.status).order_by(first)).all()
        counts: dict[str, Counter[str]] = {}
        for task_id, status, number in rows:
            counts.setdefault(task_id, Counter())[status] = number
        return counts

    @cached_property
    def blobs(self) -> BlobStore | None:
        """Where large texts are; None for a PostgreSQL archive that was given no place."""
        with self.connection() as connection:
            kept = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == "blobs")).scalar()
        if kept is None and self._is_sqlite:
            kept = f"{self.url.database}.blobs"
        return BlobStore(kept) if kept else None

    def _remember_blobs(self, place: str) -> None:
        place = place if "://" in place else str(Path(place).expanduser().absolute())
        with self.connection(write=True) as connection:
            kept = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == "blobs")).scalar()
            if kept is None:
                connection.execute(sa.insert(_meta).values(key="blobs", value=place))
            elif kept != place:
                raise ArchiveError(f"{self.where}: its blobs are in {kept} already; move them there, or leave it out")

    def close(self) -> None:
        """Give the connections back; a later call opens new ones."""
        self._engine_of_this_process().dispose()

    @property
    def _is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def _select(self, query: sa.Select[Any]) -> list[Record]:
        with self.connection() as connection:
            rows = connection.execute(query).mappings().all()
        return [from_row(row, self.blobs) for row in rows]

    @contextmanager
    def connection(self, *, write: bool = False) -> Iterator[sa.Connection]:
        """A connection in a transaction, committed at the end: for the other files of this room."""
        with self._refusals():
            with self._engine_of_this_process().connect() as connection:
                with connection.execution_options(warpsmith_write=write).begin():
                    yield connection

    def _engine_of_this_process(self) -> sa.Engine:
        with self._mutex:
            if self._pid != os.getpid():
                # Kept, never closed: closing a connection here would meddle with the parent's locks.
                self._foreign_engines.append(self._engine)
                self._engine, self._pid = self._new_engine(), os.getpid()
                self._group = GroupCommit(self._write_group)
            return self._engine

    def _new_engine(self) -> sa.Engine:
        if not self._is_sqlite:
            return sa.create_engine(self.url)
        engine = sa.create_engine(self.url, connect_args={"timeout": BUSY_SECONDS})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _ensure_schema(self) -> None:
        """Looks first: most archives need nothing, and a look waits for no writer."""
        with self.connection() as connection:
            if schema.is_current(connection):
                return
        with self.connection(write=True) as connection:
            schema.ensure(connection, self.where)

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns what the database or the file system says into one line."""
        try:
            yield
        except sa.exc.DBAPIError as error:
            raise ArchiveError(f"{self.where}: {_explain(str(error.orig))}") from error
        except (sa.exc.SQLAlchemyError, sqlite3.Error) as error:
            raise ArchiveError(f"{self.where}: {_explain(str(error))}") from error
        except ModuleNotFoundError as error:
            raise ArchiveError(f"{self.where}: this URL needs the package {error.name}; pip install it") from error
        except OSError as error:
            raise ArchiveError(
                f"{self.where}: the archive's folder cannot be made ({error.strerror}); give another path"
            ) from error


def _parse_url(url: str) -> sa.URL:
    if "://" not in url:
        if not url:
            raise ArchiveError("the archive's path is empty; give the path of an SQLite file, or a database URL")
        return sa.URL.create("sqlite", database=str(Path(url).expanduser().absolute()))
    try:
        parsed = sa.make_url(url)
        parsed.get_dialect()
    except sa.exc.ArgumentError as error:
        raise ArchiveError(f"not a database URL ({_one_line(str(error))}); such as sqlite:////abs/path.db") from error
    except ModuleNotFoundError as error:
        raise ArchiveError(f"{parsed.render_as_string()}: needs the package {error.name}; pip install it") from error
    if parsed.get_backend_name() not in ("sqlite", "postgresql"):
        raise ArchiveError(f"{parsed.render_as_string()}: an archive is kept in sqlite or postgresql")
    if parsed.get_backend_name() == "sqlite" and parsed.database in (None, "", ":memory:"):
        raise ArchiveError(f"{url}: an archive needs a file; give sqlite:////abs/path.db")
    return parsed


def _prepare_sqlite(connection: sqlite3.Connection, _: object) -> None:
    # The driver's own transactions begin too late (at the first write): _begin_sqlite does it instead.
    connection.isolation_level = None
    connection.execute("PRAGMA foreign_keys=ON")
    connection.execute("PRAGMA synchronous=NORMAL")
    connection.execute(f"PRAGMA wal_autocheckpoint={_CHECKPOINT_PAGES}")
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if tables and _meta.name not in tables:
        return  # another program's database, about to be refused: leave it as it is
    deadline = time.monotonic() + BUSY_SECONDS
    while connection.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            # SQLite does not wait here: another process is opening the same new file.
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def _begin_sqlite(connection: sa.Connection) -> None:
    # A writer takes its lock at once: one that has read before may find that it can no longer write.
    write = connection.get_execution_options().get("warpsmith_write", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")


def _insert_if_absent(dialect: str, table: sa.Table = _records, key: tuple[str, ...] = ("record_id",)) -> Any:
    insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return insert.on_conflict_do_nothing(index_elements=list(key))


def _filters(**wanted: Any) -> list[sa.ColumnElement[bool]]:
    return [_records.c[name] == value for name, value in wanted.items() if value is not None]


def _explain(message: str) -> str:
    known = {
        "locked": f"locked by another process for more than {BUSY_SECONDS:g} s; end that process and try again",
        "not a database": "not an SQLite file; give the path of an archive, or of a new file",
        "malformed": "the file is damaged; restore a copy of it",
        "unable to open": "cannot be opened; check that it is a file in a folder that may be written to",
        "readonly": "cannot be written; check the permissions of the file and of its folder",
        "disk is full": "no space left on the disk; free some and run again",
        "disk I/O": "reading or writing failed; check the disk and its free space",
    }
    return next((text for words, text in known.items() if words in message), _one_line(message))


def _one_line(message: str) -> str:
    return " ".join(message.split())[:300]
