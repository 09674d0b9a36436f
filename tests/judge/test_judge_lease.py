"""Who may time when: alone, without starving, and never kept out by the dead."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from judge.errors import JudgeError
from judge.lease import Lease

HOLD = "import sys, time; from pathlib import Path; from judge.lease import Lease\n"


def lease(folder: Path, wait_seconds: float = 5.0) -> Lease:
    return Lease(True, wait_seconds, folder)


def test_many_share_and_one_times_alone(tmp_path: Path) -> None:
    first, second = lease(tmp_path), lease(tmp_path, 0.05)
    with first.shared(), second.shared():
        pass
    for held, wanted in (
        (first.exclusive, second.shared),
        (first.exclusive, second.exclusive),
        (first.shared, second.exclusive),
    ):
        with held(), pytest.raises(JudgeError, match="to finish timing"), wanted():
            pass
    with second.exclusive():  # nothing is left of the vain attempts
        pass
    with first.shared():
        pass


def test_one_who_wants_to_time_is_not_starved_by_a_row_of_those_who_share(tmp_path: Path) -> None:
    """Two who take turns at sharing, so that the lock is never free: the one who times must get in all the same."""
    stop = threading.Event()

    def share(offset: float) -> None:
        mine = lease(tmp_path)
        time.sleep(offset)
        while not stop.is_set():
            with mine.shared():
                time.sleep(0.1)

    threads = [threading.Thread(target=share, args=(offset,)) for offset in (0.0, 0.03, 0.06)]
    for thread in threads:
        thread.start()
    time.sleep(0.2)
    try:
        with lease(tmp_path, 4.0).exclusive():
            pass
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize("kind", ["shared", "exclusive"])
def test_the_lock_of_a_killed_holder_is_free(tmp_path: Path, kind: str) -> None:
    script = (
        HOLD + f"with Lease(True, 5, Path({str(tmp_path)!r})).{kind}():\n print('held', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2])
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(JudgeError), lease(tmp_path, 0.05).exclusive():
            pass
        process.kill()
    with lease(tmp_path).exclusive():
        pass


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"warpsmith-{os.getuid()}").symlink_to(elsewhere)
    with pytest.raises(JudgeError, match="belongs to somebody else"):
        Lease(True)
