import json
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import sqlalchemy as sa

from archive import schema
from archive.store import Archive
from archive.types import ArchivedTask, Record
from tasks.loader import suite_tasks


def _database(path: Path, version: int) -> sa.Engine:
    """A database as the warpsmith of a schema version made it."""
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.begin() as connection:
        schema.migrate(connection, None, version)
        if version == 1:  # 0.1 had no migrations
            connection.exec_driver_sql("DROP TABLE warpsmith_migrations")
    return engine


def _old_archive(path: Path) -> None:
    _database(path, 1).dispose()
    with sqlite3.connect(path) as connection:
        for number in range(20):
            connection.execute(
                "INSERT INTO records (record_id, run_id, task_name, task_id, source, operator, code, analysis, "
                "completion, parents, step, status, speedup, speedup_low, verdict, created_at) "
                "VALUES (?, 'r', 't', 'id', 'policy', 'contrast', 'code', '', 'c', '[\"p\"]', 3, 'win', 2.5, 2.25, ?, "
                "'2026-01-02T03:04:05+01:00')",
                (f"{number:02}", json.dumps({"status": "win", "speedup": 2.5, "speedup_low": 2.25})),
            )
    connection.close()


@pytest.mark.parametrize("start", [0, 1])
def test_migrations_lead_to_the_tables_that_a_new_archive_has(tmp_path: Path, start: int) -> None:
    path = tmp_path / "a.db"
    if start:
        _old_archive(path)
        Archive(str(path)).close()
    else:
        _database(path, schema.SCHEMA_VERSION).dispose()
    Archive(str(tmp_path / "new.db")).close()
    assert _layout(path) == _layout(tmp_path / "new.db")


def _layout(path: Path) -> dict[str, object]:
    """Columns with types, nulls, defaults and keys, and indexes, as SQLite itself has them."""
    with sqlite3.connect(path) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        layout: dict[str, object] = {}
        for name in set(names) - {"warpsmith_migrations"}:
            layout[name] = connection.execute(f"PRAGMA table_info({name})").fetchall()
            indexes = connection.execute(f"PRAGMA index_list({name})").fetchall()
            layout[f"{name} indexes"] = sorted((index[1], index[2], index[3]) for index in indexes)
    connection.close()
    return layout


def test_an_archive_of_version_0_1_is_migrated_when_it_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _old_archive(path)
    archive = Archive(str(path))
    found = archive.records()
    assert [record.record_id for record in found] == [f"{number:02}" for number in range(20)]
    assert found[0].verdict.speedup_low == 2.25
    assert (found[0].parents, found[0].prompt, found[0].extra, found[0].cost_usd) == (("p",), "", {}, None)
    new = found[0].model_copy(update={"record_id": "new", "model": "m", "cost_usd": 0.25, "software": {"torch": "2"}})
    assert archive.add(new)
    assert archive.get("new") == new
    with sqlite3.connect(path) as connection:
        # The warpsmith that wrote it looks here, and refuses.
        assert connection.execute("SELECT value FROM warpsmith_meta WHERE key = 'schema'").fetchall() == [("2",)]


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.db"
    _old_archive(path)
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE code_vectors (a INTEGER)")  # the last step of the migration trips over it
        before = connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall()
    with pytest.raises(Exception, match="code_vectors"):
        Archive(str(path))
    with sqlite3.connect(path) as connection:
        assert connection.execute("SELECT sql FROM sqlite_master ORDER BY name").fetchall() == before


_OPEN = """
import sys
from archive.store import Archive
sys.stdin.read()
print(Archive(sys.argv[1]).count())
"""


@pytest.mark.slow
def test_processes_that_open_an_old_archive_at_once_migrate_it_once(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    _old_archive(path)
    command = [sys.executable, "-c", _OPEN, str(path)]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
        process.stdin = None
    assert [process.communicate(timeout=120)[0].strip() for process in processes] == ["20"] * 4


def test_tasks_are_kept_beside_records(archive: Archive, make_record: Callable[..., Record]) -> None:
    tasks = [ArchivedTask.of(task) for task in suite_tasks()]
    archive.add_tasks(tasks)
    archive.add_tasks([tasks[0].model_copy(update={"name": "other"})])
    assert archive.tasks() == {task.task_id: task for task in tasks}
    assert next(iter(tasks[0].shapes)) == "default"


def test_ids_are_found_by_their_beginning(archive: Archive, make_record: Callable[..., Record]) -> None:
    archive.add_many([make_record(1.0, record_id=name) for name in ("abc", "abd", "a%c", "xbc")])
    assert archive.ids("ab") == ["abc", "abd"]
    assert archive.ids("a%") == ["a%c"]
    assert archive.ids("", limit=2) == ["abc", "abd"]
