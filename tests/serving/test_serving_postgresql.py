"""The service's tables on a real PostgreSQL server; skipped where there is none.

Debian, Ubuntu: apt-get install postgresql
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from archive.store import Archive
from learner.types import WeightsVersion
from serving.job_store import JobStore
from serving.job_types import JobState, QueueFullError
from serving.keys import KeyStore
from serving.weights_board import WeightsBoard

pytestmark = pytest.mark.slow
SERVER_USER = "postgres"


def _run(command: list[str], folder: Path) -> None:
    """The server refuses to run as root: then it runs as the user that its package made."""
    user: dict[str, Any] = {"user": SERVER_USER, "group": SERVER_USER, "extra_groups": []} if os.geteuid() == 0 else {}
    subprocess.run(
        command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60, check=True, **user
    )


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """A database on a server of our own, reached through a socket in a folder of its own: no port is opened."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    found = [Path(path).parent for path in (shutil.which("initdb"),) if path]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    if not found:
        pytest.skip("no PostgreSQL server here (Debian, Ubuntu: apt-get install postgresql)")
    folder = Path("/tmp") / f"warpsmith-serving-{os.getpid()}"  # short: a socket's path has at most 107 bytes
    folder.mkdir(mode=0o755)
    if os.geteuid() == 0:
        try:
            pwd.getpwnam(SERVER_USER)
        except KeyError:
            folder.rmdir()
            pytest.skip(f"running as root, and there is no user {SERVER_USER} to run the server as")
        shutil.chown(folder, SERVER_USER, SERVER_USER)
    control = [str(found[0] / "pg_ctl"), "-D", str(folder / "data"), "-w"]
    try:
        _run(
            [str(found[0] / "initdb"), "-D", str(folder / "data"), "-U", "tester", "-A", "trust", "-E", "UTF8"], folder
        )
        options = f"-k {folder} -c listen_addresses='' -c fsync=off"
        _run([*control, "-l", "log", "-o", options, "start"], folder)
        try:
            yield f"postgresql+psycopg://tester@/postgres?host={folder}"
        finally:
            _run([*control, "-m", "immediate", "stop"], folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def test_processes_that_start_at_once_make_the_tables_once(url: str) -> None:
    errors: list[BaseException] = []

    def start() -> None:
        try:
            archive = Archive(url)
            JobStore(archive)
            KeyStore(archive)
            WeightsBoard(archive)
            archive.close()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_many_workers_never_claim_the_same_job(url: str) -> None:
    archive = Archive(url)
    store = JobStore(archive, lease_seconds=30)
    jobs = {store.submit({}, owner="", task_name="t", max_waiting=100).job_id for _ in range(40)}
    with pytest.raises(QueueFullError):
        store.submit({}, owner="", task_name="t", max_waiting=40)
    claimed: list[str] = []

    def work(worker: str) -> None:
        while (job := store.claim(worker)) is not None:
            claimed.append(job.job_id)
            store.add_event(job.job_id, worker, "verdict", {"message": "a"})
            store.finish(job.job_id, worker, JobState.DONE, result={"status": "none"})

    threads = [threading.Thread(target=work, args=(f"w{number}",)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(jobs)
    kinds = [[event.kind for event in store.events(job_id)] for job_id in jobs]
    assert kinds == [["queued", "running", "verdict", "done"]] * 40
    assert store.prune(keep=5) == 35
    assert store.counts()["done"] == 5
    archive.close()


def test_a_dead_workers_job_passes_on(url: str) -> None:
    archive = Archive(url)
    store = JobStore(archive, lease_seconds=0.05)
    job = store.submit({}, owner="", task_name="t", max_waiting=100)
    assert store.claim("dead") is not None
    time.sleep(0.1)
    again = store.claim("next")
    assert again is not None
    assert (again.job_id, again.attempts) == (job.job_id, 2)
    assert not store.finish(job.job_id, "dead", JobState.DONE, result={})
    assert store.cancel(job.job_id).cancel_requested  # type: ignore[union-attr]
    assert store.release("next") == 1
    archive.close()


def test_keys_and_weights_are_found_again(url: str) -> None:
    archive = Archive(url)
    key, secret = KeyStore(archive).create("a", scopes=["judge"])
    assert KeyStore(archive).find(secret) == key
    version = WeightsVersion(policy_version=3, path="/weights/3", sha256="0" * 64)
    board = WeightsBoard(archive)
    assert board.current() is None
    board.put(version)
    board.put(version)
    assert WeightsBoard(archive).current() == version
    archive.close()
