import math
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy.dialects import postgresql

from archive import schema, store
from archive.errors import ArchiveError
from archive.store import Archive
from archive.types import Record
from judge.types import Status, Verdict

Make = Callable[..., Record]


def test_a_record_comes_back_as_it_went_in(archive: Archive, full_record: Record) -> None:
    assert archive.add(full_record)
    found = archive.get("full")
    assert found == full_record
    assert found is not None
    assert found.created_at.utcoffset() == timedelta(hours=5, minutes=30)
    assert found.verdict.baselines.eager == 1 / 3
    assert archive.get("other") is None


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    number=st.floats(allow_nan=False),
    parents=st.lists(st.text(st.characters(exclude_categories=["Cs"]))),
    at=st.datetimes(timezones=st.just(UTC)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_record_comes_back_as_it_went_in(
    archive: Archive, text: str, number: float, parents: list[str], at: datetime
) -> None:
    verdict = Verdict(status=Status.CORRECT, speedup=number, max_error=number, message=text, hardware={text: text})
    record = Record(
        run_id=text,
        task_name=text,
        task_id="t",
        source=text,
        operator=text,
        code=text,
        completion=text,
        parents=tuple(parents),
        verdict=verdict,
        created_at=at,
    )
    archive.add(record)
    assert archive.get(record.record_id) == record


def test_not_a_number_comes_back_too(archive: Archive, make_record: Make) -> None:
    archive.add(make_record(record_id="n", verdict=Verdict(status=Status.INCORRECT, max_error=math.nan)))
    found = archive.get("n")
    assert found is not None and found.verdict.max_error is not None
    assert math.isnan(found.verdict.max_error)


def test_the_second_record_of_an_id_changes_nothing(archive: Archive, make_record: Make) -> None:
    first = make_record(1.5, record_id="same")
    assert archive.add(first)
    assert not archive.add(make_record(9.0, record_id="same"))
    assert archive.add_many([first, make_record(2.0), make_record(3.0)]) == 2
    assert archive.get("same") == first
    assert archive.count() == 3


def test_add_many_keeps_all_or_none(archive: Archive, make_record: Make) -> None:
    bad = make_record(2.0).model_copy(update={"step": "no number \ud800"})
    with pytest.raises((ArchiveError, UnicodeEncodeError)):
        archive.add_many([make_record(1.0), bad])
    assert archive.count() == 0


def test_filters_select_and_the_oldest_come_first(archive: Archive, make_record: Make) -> None:
    records = [
        make_record(1.0 + i, task_name=f"t{i % 2}", task_id=f"id{i % 2}", run_id=f"r{i % 3}", step=i, source="policy")
        for i in range(12)
    ] + [make_record(source="expert", task_name="t0", task_id="id0")]
    archive.add_many(records)
    assert archive.records() == records
    assert archive.records(limit=3) == records[:3]
    for name, value in [
        ("task_id", "id1"),
        ("task_name", "t0"),
        ("run_id", "r2"),
        ("source", "expert"),
        ("status", "win"),
        ("status", Status.COMPILE_ERROR),
        ("step", 0),
        ("step", 99),
    ]:
        expected = [r for r in records if (r.verdict.status if name == "status" else getattr(r, name)) == value]
        assert archive.records(**{name: value}) == expected  # type: ignore[arg-type]
        assert archive.count(**{name: value}) == len(expected)  # type: ignore[arg-type]
    both = [r for r in records if r.task_name == "t0" and r.run_id == "r0"]
    assert archive.records(task_name="t0", run_id="r0") == both


def test_best_is_the_win_with_the_highest_lower_bound(archive: Archive, make_record: Make) -> None:
    assert archive.best("op-id") is None
    archive.add(make_record(9.0, 9.0, task_id="another"))
    archive.add(make_record())
    assert archive.best("op-id") is None
    correct = [
        make_record(record_id=f"c{s}", verdict=Verdict(status=Status.CORRECT, speedup=s)) for s in (0.9, 1.0, 0.5)
    ]
    archive.add_many(correct)
    assert archive.best("op-id") == correct[1]
    sure, wide, copy = make_record(1.5, 1.4), make_record(3.0, 1.1), make_record(1.5, 1.4)
    archive.add_many([wide, sure, copy])
    assert archive.best("op-id") == sure


def test_summary_counts_by_source_and_status(archive: Archive, make_record: Make) -> None:
    best = make_record(2.0, 1.9, source="expert", run_id="suite")
    other = make_record(3.0, 2.9, task_id="other-id")
    archive.add_many([best, make_record(1.5, 1.2), make_record(), make_record(), other])
    summary = archive.summary()
    assert summary.counts == {("expert", "win"): 1, ("policy", "compile_error"): 2, ("policy", "win"): 2}
    assert summary.best == {"op-id": best, "other-id": other}
    assert archive.summary("suite").counts == {("expert", "win"): 1}
    assert archive.summary("suite").best == {"op-id": best}
    assert archive.summary("nobody") == store.Summary(counts={}, best={})


@pytest.mark.parametrize("form", ["{path}", "sqlite:///{path}"])
def test_paths_and_urls_open_the_same_archive_and_make_its_folder(tmp_path: Path, make_record: Make, form: str) -> None:
    path = tmp_path / "new folder" / "deeper" / "a.db"
    archive = Archive(form.format(path=path))
    archive.add(make_record(1.0))
    archive.close()
    assert Archive(str(path)).count() == 1


def test_sqlite_runs_with_a_write_ahead_log(archive: Archive) -> None:
    with sqlite3.connect(archive.url.database or "") as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with archive.connection() as live:
        assert live.exec_driver_sql("PRAGMA synchronous").scalar() == 1
        assert live.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        assert live.exec_driver_sql("PRAGMA busy_timeout").scalar() == store.BUSY_SECONDS * 1000


def test_the_tables_and_queries_are_valid_for_postgresql() -> None:
    dialect = postgresql.dialect()
    ddl = "".join(str(sa.schema.CreateTable(table).compile(dialect=dialect)) for table in schema.metadata.sorted_tables)
    assert "BIGSERIAL" in ddl
    assert "verdict JSON" in ddl
    assert "ON CONFLICT (record_id) DO NOTHING" in str(store._insert_if_absent("postgresql").compile(dialect=dialect))


# Refusals: one line each, with what is wrong, where, and what to do.


def refusal(url: object) -> str:
    with pytest.raises(ArchiveError) as caught:
        Archive(str(url))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_no_sqlite_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("notes of a person\n" * 100)
    assert refusal(path) == f"{path}: not an SQLite file; give the path of an archive, or of a new file"
    assert path.read_text() == "notes of a person\n" * 100


def test_a_database_of_another_program_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "browser.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    assert "another program" in refusal(path)
    assert path.read_bytes() == before


def test_an_archive_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    Archive(str(path)).close()
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE warpsmith_meta SET value = '7'")
    connection.close()
    assert "schema version 7, this warpsmith reads 2" in refusal(path)


def test_places_that_cannot_hold_an_archive_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "folder cannot be made" in refusal(tmp_path / "file" / "a.db")
    assert "cannot be opened" in refusal(tmp_path)
    assert "empty" in refusal("")
    assert "not a database URL" in refusal("nosuch://host/name")
    assert "sqlite or postgresql" in refusal("mysql://host/name")
    assert "needs a file" in refusal("sqlite://")


def test_a_password_is_not_shown() -> None:
    assert "secret" not in refusal("mysql://me:secret@host/name")


def test_a_lock_that_lasts_is_an_error_in_one_line(archive: Archive, make_record: Make, monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(store, "BUSY_SECONDS", 0.2)
    impatient = Archive(str(archive.url.database))
    holder = sqlite3.connect(archive.url.database or "", isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(ArchiveError, match=r"archive\.db: locked by another process for more than 0\.2 s; end"):
        impatient.add(make_record(1.0))
    holder.execute("COMMIT")
    holder.close()
    assert impatient.add(make_record(1.0))


_FILL_THE_DISK = """
import resource, signal, sys
from archive.errors import ArchiveError
from archive.store import Archive
from archive.types import Record
from judge.types import Verdict
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
archive = Archive(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))  # a write beyond it fails, as on a full disk
kept = 0
try:
    for number in range(100):
        archive.add(Record(record_id=str(number), run_id="r", task_name="t", task_id="t", source="s", operator="o",
                           code="x" * 20_000, verdict=Verdict(status="win")))
        kept += 1
except ArchiveError as error:
    print(kept, error)
"""


def test_no_space_is_an_error_in_one_line_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    done = subprocess.run(
        [sys.executable, "-c", _FILL_THE_DISK, str(path)], capture_output=True, text=True, timeout=60, check=True
    )
    kept, message = done.stdout.strip().split(" ", 1)
    assert message.startswith(f"{path}: ")
    assert "space" in message
    assert "\n" not in message
    assert 0 < int(kept) < 100
    assert {r.record_id for r in Archive(str(path)).records()} >= {str(n) for n in range(int(kept))}


# Several writers.


def _numbered(record_id: str) -> Record:
    verdict = Verdict(status=Status.WIN, speedup=2.0)
    return Record(
        record_id=record_id, run_id="r", task_name="t", task_id="t", source="s", operator="o", code="c", verdict=verdict
    )


_WRITE = """
import sys
from archive.store import Archive
from archive.types import Record
from judge.types import Verdict
path, writer, number = sys.argv[1:]
verdict = Verdict(status="win", speedup=2.0)
sys.stdin.read()  # all start together, on an archive that none has made yet
archive = Archive(path)
for i in range(int(number)):
    archive.add(Record(record_id=f"{writer}-{i}", run_id="r", task_name="t", task_id="t", source="s", operator="o",
                       code="c", verdict=verdict))
    print(f"{writer}-{i}", flush=True)
"""


def _writer(path: str, name: str, number: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", _WRITE, path, name, str(number)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_sixteen_processes_write_a_new_archive_at_once_and_nothing_is_lost(tmp_path: Path) -> None:
    path = str(tmp_path / "shared.db")
    writers = [_writer(path, str(number), 200) for number in range(16)]
    for process in writers:
        assert process.stdin is not None
        process.stdin.close()
    for process in writers:
        assert process.stdout is not None
        process.stdout.read()
        process.stdout.close()
        assert process.wait(120) == 0
    ids = [record.record_id for record in Archive(path).records()]
    assert sorted(ids) == sorted(f"{writer}-{i}" for writer in range(16) for i in range(200))
    for writer in range(16):
        own = [record_id for record_id in ids if record_id.startswith(f"{writer}-")]
        assert own == [f"{writer}-{i}" for i in range(200)], "each writer's records are in its order"


@pytest.mark.parametrize("after", [1, 57, 400])
def test_a_killed_writer_loses_nothing_that_it_had_confirmed(tmp_path: Path, after: int) -> None:
    path = str(tmp_path / "a.db")
    with _writer(path, "w", 100_000) as writer:
        assert writer.stdin is not None and writer.stdout is not None
        writer.stdin.close()
        confirmed = [writer.stdout.readline().strip() for _ in range(after)]
        os.kill(writer.pid, signal.SIGKILL)
        confirmed += writer.stdout.read().split()
    assert writer.returncode == -signal.SIGKILL
    found = [record.record_id for record in Archive(path).records()]
    assert found[: len(confirmed)] == confirmed
    assert len(found) - len(confirmed) <= 1, "at most the one that was written but not yet confirmed"
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_an_archive_goes_on_working_on_both_sides_of_a_fork(archive: Archive) -> None:
    archive.add(_numbered("before"))
    child = multiprocessing.get_context("fork").Process(target=lambda: archive.add(_numbered("child")))
    child.start()
    archive.add(_numbered("parent"))
    child.join(60)
    assert child.exitcode == 0
    assert {record.record_id for record in archive.records()} == {"before", "child", "parent"}


def test_threads_share_an_archive(archive: Archive) -> None:
    def write(thread: int) -> None:
        for i in range(25):
            archive.add(_numbered(f"{thread}-{i}"))

    threads = [threading.Thread(target=write, args=(thread,)) for thread in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert archive.count() == 200


def test_a_closed_archive_opens_again(archive: Archive) -> None:
    archive.add(_numbered("a"))
    archive.close()
    archive.close()
    assert archive.count() == 1
