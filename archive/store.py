"""Where records are kept: SQLite by default, PostgreSQL by URL.

    archive = Archive("runs/cpu/archive.db")          # or "sqlite:////abs/path.db", "postgresql+psycopg://host/name"
    archive.add(record)                               # on disk when it returns
    archive.records(task_name="softmax", status="win")

Several processes may write to one archive at once. An Archive may be used from several threads, and after a fork too:
each process opens connections of its own, since a database connection must never cross a fork.

SQLite runs with a write-ahead log and ``synchronous=NORMAL``: a record that ``add`` has confirmed survives the death of
any process, also by SIGKILL; a power cut may take the last ones, but never corrupts the file.
"""

from __future__ import annotations

import math
import os
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from archive.errors import ArchiveError
from archive.types import Record
from judge.types import Status, Verdict

SCHEMA_VERSION = "1"
"""Raised with every change of the tables; an archive of another version is refused."""
BUSY_SECONDS = 30.0
"""Longest wait for another process that is writing."""

_metadata = sa.MetaData()
_meta = sa.Table(
    "warpsmith_meta",
    _metadata,
    sa.Column("key", sa.String(32), primary_key=True),
    sa.Column("value", sa.Text, nullable=False),
)
# BIGINT for PostgreSQL; SQLite counts up by itself only in a column declared INTEGER.
_POSITION = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_records = sa.Table(
    "records",
    _metadata,
    sa.Column("position", _POSITION, primary_key=True, autoincrement=True),  # order of arrival
    sa.Column("record_id", sa.String(64), nullable=False, unique=True),
    sa.Column("run_id", sa.Text, nullable=False, index=True),
    sa.Column("task_name", sa.Text, nullable=False, index=True),
    sa.Column("task_id", sa.String(64), nullable=False),
    sa.Column("source", sa.Text, nullable=False, index=True),
    sa.Column("operator", sa.Text, nullable=False),
    sa.Column("code", sa.Text, nullable=False),
    sa.Column("analysis", sa.Text, nullable=False),
    sa.Column("completion", sa.Text, nullable=False),
    sa.Column("parents", sa.JSON, nullable=False),
    sa.Column("group_id", sa.Text),
    sa.Column("step", sa.Integer, index=True),
    sa.Column("policy_version", sa.Integer),
    # Copies of three of the verdict's fields, for queries; the verdict itself is what is read back.
    sa.Column("status", sa.String(16), nullable=False),
    sa.Column("speedup", sa.Double),
    sa.Column("speedup_low", sa.Double),
    sa.Column("verdict", sa.JSON, nullable=False),
    sa.Column("created_at", sa.String(40), nullable=False),  # ISO 8601 with its offset, which SQLite's dates lose
    sa.Index("records_by_task", "task_id", "status", "speedup_low"),
)


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

    def __init__(self, url: str) -> None:
        """Open the archive, and create it (with its folder) where there is none.

        Args:
            url: an SQLAlchemy URL, or the path of an SQLite file.
        """
        self.url = _parse_url(url)
        self.where = self.url.database or "memory" if self._is_sqlite else self.url.render_as_string()
        self._mutex = threading.Lock()
        self._pid = os.getpid()
        self._foreign_engines: list[sa.Engine] = []
        with self._refusals():
            if self._is_sqlite:
                Path(self.url.database or "").parent.mkdir(parents=True, exist_ok=True)
            self._engine = self._new_engine()
            self._ensure_schema()

    def add(self, record: Record) -> bool:
        """Keep a record; durable when this returns. False when its record_id was there: then nothing changes."""
        return self.add_many([record]) == 1

    def add_many(self, records: Iterable[Record]) -> int:
        """Keep records, all of them or none; returns how many were new."""
        rows = [_to_row(record) for record in records]
        if not self._is_sqlite:  # PostgreSQL has no NUL in a text; models do write it
            rows = [{k: v.replace("\0", "\ufffd") if isinstance(v, str) else v for k, v in row.items()} for row in rows]
        with self._connection(write=True) as connection:
            insert = _insert_if_absent(connection.dialect.name)
            return sum(connection.execute(insert, row).rowcount for row in rows)

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
        with self._connection() as connection:
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
        with self._connection() as connection:
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

    def close(self) -> None:
        """Give the connections back; a later call opens new ones."""
        self._engine_of_this_process().dispose()

    @property
    def _is_sqlite(self) -> bool:
        return self.url.get_backend_name() == "sqlite"

    def _select(self, query: sa.Select[Any]) -> list[Record]:
        with self._connection() as connection:
            rows = connection.execute(query).mappings().all()
        return [_from_row(row) for row in rows]

    @contextmanager
    def _connection(self, *, write: bool = False) -> Iterator[sa.Connection]:
        """A connection in a transaction, committed at the end."""
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
            return self._engine

    def _new_engine(self) -> sa.Engine:
        if not self._is_sqlite:
            return sa.create_engine(self.url)
        engine = sa.create_engine(self.url, connect_args={"timeout": BUSY_SECONDS})
        sa.event.listen(engine, "connect", _prepare_sqlite)
        sa.event.listen(engine, "begin", _begin_sqlite)
        return engine

    def _ensure_schema(self) -> None:
        """Make the tables in an empty database; refuse one of another version, or of another program."""
        with self._connection(write=True) as connection:
            tables = set(sa.inspect(connection).get_table_names())
            if _meta.name not in tables:
                if self._is_sqlite and tables:
                    raise ArchiveError(f"{self.where}: a database of another program; give the path of an archive")
                if _records.name in tables:
                    raise ArchiveError(f"{self.where}: has a foreign table 'records'; give a database of its own")
                _metadata.create_all(connection)
                connection.execute(sa.insert(_meta).values(key="schema", value=SCHEMA_VERSION))
                return
            version = connection.execute(sa.select(_meta.c.value).where(_meta.c.key == "schema")).scalar()
            if version != SCHEMA_VERSION:
                raise ArchiveError(
                    f"{self.where}: an archive of schema version {version}, this warpsmith reads {SCHEMA_VERSION}; "
                    "use the warpsmith that wrote it, or another path"
                )

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


def _insert_if_absent(dialect: str) -> Any:
    insert = postgresql.insert(_records) if dialect == "postgresql" else sqlite.insert(_records)
    return insert.on_conflict_do_nothing(index_elements=["record_id"])


def _filters(**wanted: Any) -> list[sa.ColumnElement[bool]]:
    return [_records.c[name] == value for name, value in wanted.items() if value is not None]


_VERDICT_FIELDS = ("status", "speedup", "speedup_low")
_COLUMNS = tuple(name for name in Record.model_fields if name not in ("parents", "verdict", "created_at"))


def _to_row(record: Record) -> dict[str, Any]:
    return {
        **{name: getattr(record, name) for name in _COLUMNS},
        **{name: getattr(record.verdict, name) for name in _VERDICT_FIELDS},
        "parents": list(record.parents),
        "verdict": finite(record.verdict.model_dump(mode="json")),
        "created_at": record.created_at.isoformat(),
    }


def _from_row(row: Any) -> Record:
    return Record(
        **{name: row[name] for name in _COLUMNS},
        parents=tuple(row["parents"]),
        verdict=Verdict.model_validate(row["verdict"]),
        created_at=datetime.fromisoformat(row["created_at"]),
    )


def finite(value: Any) -> Any:
    """A dump whose infinities and NaNs are text, which JSON lacks (PostgreSQL refuses them); Verdict reads it back."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    return value


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
