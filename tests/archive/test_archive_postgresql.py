"""The archive on a real PostgreSQL server, started here from the distribution's package; skipped where there is none.

Debian, Ubuntu: apt-get install postgresql
"""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import sqlalchemy as sa

from archive import schema
from archive.errors import ArchiveError
from archive.rows import INLINE_BYTES
from archive.similarity import index_of
from archive.store import Archive
from archive.types import ArchivedTask, Record
from archive.upkeep import collect, merge, verify

Make = Callable[..., Record]
SERVER_USER = "postgres"


def _binaries() -> Path | None:
    found = [Path(path).parent for path in (shutil.which("initdb"),) if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in found if (folder / "initdb").exists() and (folder / "pg_ctl").exists()), None)


def _as_server(command: list[str], folder: Path) -> None:
    """The server refuses to run as root: then it runs as the user that its package made."""
    user = {"user": SERVER_USER, "group": SERVER_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        timeout=60,
        **user,
    )
    assert done.returncode == 0, done.stderr.decode()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL prefix of a server of our own, reached through a socket in a folder of its own: no port is opened."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here (Debian, Ubuntu: apt-get install postgresql)")
    folder = Path("/tmp") / f"warpsmith-postgresql-{os.getpid()}"  # short: a socket's path has at most 107 bytes
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(SERVER_USER)
        except KeyError:
            pytest.skip(f"running as root, and there is no user {SERVER_USER} to run the server as")
        shutil.chown(folder, SERVER_USER, SERVER_USER)
    data = folder / "data"
    try:
        _as_server([str(binaries / "initdb"), "-D", str(data), "-U", "tester", "-A", "trust", "-E", "UTF8"], folder)
        options = f"-k {folder} -c listen_addresses='' -c fsync=off -c max_connections=60"
        _as_server([str(binaries / "pg_ctl"), "-D", str(data), "-l", "log", "-w", "-o", options, "start"], folder)
        try:
            yield f"postgresql+psycopg://tester@/{{}}?host={folder}"
        finally:
            _as_server([str(binaries / "pg_ctl"), "-D", str(data), "-m", "immediate", "-w", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def url(server: str, request: pytest.FixtureRequest) -> str:
    """The URL of a new, empty database."""
    name = f"t{abs(hash(request.node.name)) % 10**12}"
    engine = sa.create_engine(server.format("postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.format(name)


def test_records_come_back_as_they_went_in(url: str, full_record: Record, make_record: Make) -> None:
    archive = Archive(url)
    large = make_record(2.0, prompt="é" * INLINE_BYTES)
    full = full_record.model_copy(update={"code": full_record.code.replace("\0", "")})
    assert archive.add_many([full, large, full]) == 2
    assert archive.records() == [full, large]
    assert Archive(url).best("op-id") == large
    assert archive.blobs is None
    assert archive.ids("ful") == ["full"]
    assert archive.status_counts() == {"abc": {"win": 1}, "op-id": {"win": 1}}
    archive.close()


def test_a_nul_which_postgresql_lacks_is_shown_as_such(url: str, full_record: Record) -> None:
    archive = Archive(url)
    archive.add(full_record)
    assert archive.get("full") == full_record.model_copy(update={"code": full_record.code.replace("\0", "\ufffd")})


def test_upkeep_works_there_too(url: str, tmp_path: Path, make_record: Make) -> None:
    source = Archive(str(tmp_path / "a.db"))
    source.add_many([make_record(1.0 + i, code=f"int f{i}();", prompt="x" * INLINE_BYTES + "y") for i in range(20)])
    source.add_tasks([ArchivedTask(task_id="op-id", name="op", source="s", shapes={"default": {"N": 3}})])
    archive = Archive(url, blobs=str(tmp_path / "blobs"))
    assert merge(archive, source) == 20
    assert merge(archive, source) == 0
    assert archive.records() == source.records()
    assert archive.tasks() == source.tasks()
    assert index_of(archive).nearest("int f7();", 1)[0].record_id == archive.records()[7].record_id
    check = verify(archive)
    assert (check.records, check.blobs, check.problems) == (20, 1, ())
    assert collect(archive, min_age_hours=0).blobs == 0


def test_an_old_archive_is_migrated_and_a_newer_one_refused(url: str, make_record: Make) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        schema.migrate(connection, None, 1)
        connection.exec_driver_sql("DROP TABLE warpsmith_migrations")
    archive = Archive(url)
    record = make_record(1.0, model="m")
    archive.add(record)
    assert Archive(url).records() == [record]
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE warpsmith_meta SET value = '9'")
    with pytest.raises(ArchiveError, match="schema version 9, this warpsmith reads 2") as caught:
        Archive(url)
    assert "upgrade" in str(caught.value)


def test_a_database_with_tables_of_others_is_used_unless_they_clash(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE bookmarks (url TEXT)")
    assert Archive(url).count() == 0


def test_a_foreign_table_of_the_same_name_is_refused(url: str) -> None:
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("CREATE TABLE tasks (url TEXT)")
    with pytest.raises(ArchiveError, match="foreign table 'tasks'"):
        Archive(url)


_WRITE = """
import sys
from archive.store import Archive
from archive.types import Record
from judge.types import Verdict
url, writer, number = sys.argv[1:]
sys.stdin.read()
archive = Archive(url)
for i in range(int(number)):
    archive.add(Record(record_id=f"{writer}-{i}", run_id="r", task_name="t", task_id="t", source="s", operator="o",
                       code="c", verdict=Verdict(status="win", speedup=2.0)))
"""


@pytest.mark.slow
def test_sixteen_processes_write_a_new_archive_at_once(url: str) -> None:
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITE, url, str(number), "50"], stdin=subprocess.PIPE)
        for number in range(16)
    ]
    for process in writers:
        assert process.stdin is not None
        process.stdin.close()
    assert [process.wait(120) for process in writers] == [0] * 16
    ids = [record.record_id for record in Archive(url).records()]
    assert sorted(ids) == sorted(f"{writer}-{i}" for writer in range(16) for i in range(50))
    for writer in range(16):
        assert [i for i in ids if i.startswith(f"{writer}-")] == [f"{writer}-{i}" for i in range(50)]
