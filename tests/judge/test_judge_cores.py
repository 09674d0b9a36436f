"""Judges side by side: each on cores of its own while there are any."""

from __future__ import annotations

import os
import subprocess
import sys
from uuid import uuid4

from judge.cores import Cores


def test_judges_share_no_core_until_none_is_free() -> None:
    among = uuid4().hex
    allowed = sorted(os.sched_getaffinity(0))
    judges = [Cores(1, among) for _ in allowed]
    try:
        assert sorted(core for judge in judges for core in judge.numbers) == allowed
        assert Cores(1, among).numbers == allowed[-1:]
        assert Cores(len(allowed), among).numbers == allowed
        judges[0].release()
        again = Cores(1, among)
        assert again.numbers == judges[0].numbers
        again.release()
    finally:
        for judge in judges:
            judge.release()


def test_a_killed_judges_core_is_free_again() -> None:
    among = uuid4().hex
    code = f"import os; from judge.cores import Cores; c = Cores(1, {among!r}); print(c.numbers[0], flush=True)"
    killed = subprocess.run([sys.executable, "-c", f"{code}; os.kill(os.getpid(), 9)"], capture_output=True, text=True)
    assert killed.returncode == -9
    cores = Cores(1, among)
    assert cores.numbers == [int(killed.stdout)]
    cores.release()
