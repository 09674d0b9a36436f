"""Judges side by side: each on cores of its own while there are any."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from judge.cores import Cores


def test_judges_share_no_core_until_none_is_free(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    judges = [Cores(1, tmp_path) for _ in allowed]
    try:
        assert sorted(core for judge in judges for core in judge.numbers) == allowed
        assert Cores(1, tmp_path).numbers == allowed[-1:]
        assert Cores(len(allowed), tmp_path).numbers == allowed
        judges[0].release()
        again = Cores(1, tmp_path)
        assert again.numbers == judges[0].numbers
        again.release()
    finally:
        for judge in judges:
            judge.release()


def test_a_killed_judges_core_is_free_again(tmp_path: Path) -> None:
    code = "import os, sys, pathlib; from judge.cores import Cores; c = Cores(1, pathlib.Path(sys.argv[1])); "
    code += "print(c.numbers[0], flush=True); os.kill(os.getpid(), 9)"
    killed = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert killed.returncode == -9
    cores = Cores(1, tmp_path)
    assert cores.numbers == [int(killed.stdout)]
    cores.release()


def test_a_folder_of_somebody_else_is_no_reason_to_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    (tmp_path / f"warpsmith-{os.getuid()}").symlink_to("/tmp")
    assert Cores(1).numbers == [max(os.sched_getaffinity(0))]
