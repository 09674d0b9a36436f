import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path

from archive.rows import INLINE_BYTES
from archive.similarity import index_of
from archive.store import Archive
from archive.types import ArchivedTask, Record
from archive.upkeep import collect, merge, verify

Make = Callable[..., Record]
LONG = "x" * (INLINE_BYTES + 1)


def _age(archive: Archive, hours: float) -> None:
    for path in Path(f"{archive.url.database}.blobs").glob("*/*"):
        os.utime(path, (time.time() - hours * 3600,) * 2)


def _forget(archive: Archive, record_id: str) -> None:
    with sqlite3.connect(archive.url.database or "") as connection:
        connection.execute("DELETE FROM records WHERE record_id = ?", (record_id,))
    connection.close()


def test_a_merge_adds_what_is_new_and_can_be_repeated(archive: Archive, tmp_path: Path, make_record: Make) -> None:
    other = Archive(str(tmp_path / "other.db"))
    shared, large = make_record(1.0), make_record(2.0, prompt=LONG)
    archive.add(shared)
    other.add_many([shared, large, *(make_record(1.0 + i) for i in range(1200))])
    task = ArchivedTask(task_id="op-id", name="op", source="class Model: ...")
    other.add_tasks([task])
    assert merge(archive, other) == 1201
    assert merge(archive, other) == 0
    assert archive.records() == other.records()
    assert archive.tasks() == {"op-id": task}
    assert verify(archive).problems == ()


def test_gc_removes_old_blobs_that_no_record_names(archive: Archive, make_record: Make) -> None:
    kept, gone = make_record(1.0, prompt=LONG), make_record(1.0, prompt=LONG + "y", code="unique")
    archive.add_many([kept, gone])
    index_of(archive)
    _forget(archive, gone.record_id)
    assert collect(archive).blobs == 0, "it may belong to a record that is being written"
    _age(archive, 2)
    looked = collect(archive, dry_run=True)
    assert (looked.blobs, looked.bytes) == (1, INLINE_BYTES + 2)
    assert collect(archive).blobs == 1
    assert collect(archive) == collect(archive, dry_run=True)
    assert archive.records() == [kept]


def test_gc_drops_vectors_of_code_that_is_gone(archive: Archive, make_record: Make) -> None:
    gone = make_record(1.0, code="unique")
    archive.add_many([make_record(1.0), gone])
    index_of(archive)
    _forget(archive, gone.record_id)
    assert collect(archive).vectors == 1
    assert collect(archive).vectors == 0


def test_verify_names_each_damage(archive: Archive, make_record: Make) -> None:
    archive.add_many([make_record(1.0, record_id=name, prompt=LONG + name, parents=["far away"]) for name in "abcdef"])
    check = verify(archive)
    assert (check.records, check.blobs, check.problems, check.strangers) == (6, 6, (), 1)
    with sqlite3.connect(archive.url.database or "") as connection:
        connection.execute("UPDATE records SET speedup = 99 WHERE record_id = 'a'")
        connection.execute("UPDATE records SET verdict = '{\"status\": \"great\"}' WHERE record_id = 'b'")
        connection.execute("UPDATE records SET parents = '[\"c\"]' WHERE record_id = 'c'")
        (named,) = connection.execute("SELECT blobs FROM records WHERE record_id = 'd'").fetchone()
        connection.execute("UPDATE records SET created_at = 'noon' WHERE record_id = 'e'")
    connection.close()
    digest = named.split('"')[3]
    (Path(f"{archive.url.database}.blobs") / digest[:2] / digest).write_text("else")
    found = "\n".join(verify(archive).problems)
    assert "record a: its status and speedup differ" in found
    assert "record b: cannot be read" in found
    assert "record c: is its own parent" in found
    assert "record d: cannot be read" in found and "damaged" in found
    assert "record e: cannot be read" in found
    assert len(found.splitlines()) == 5
