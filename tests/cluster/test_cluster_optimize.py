"""`warpsmith optimize` for real: vLLM with a tiny random policy, the judge, Ray."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from archive.store import Archive
from cluster.optimize import _report
from judge.types import Status
from serving.optimizer import OptimizeResult
from tasks.loader import suite_task

ROOT = Path(__file__).parents[2]
WARPSMITH = Path(sys.executable).with_name("warpsmith")
QUICK = ["rollout.max_tokens=16", "rollout.group_size=2", "judge.pairs=3", "judge.calls=4", "run.min_free_disk_gb=0"]


def command(folder: Path, *arguments: str) -> list[str]:
    settings = [f"run.folder={folder}", *QUICK]
    sets = [part for setting in settings for part in ("--set", setting)]
    return [str(WARPSMITH), "optimize", "squared_relu", "--model", "tiny-random", *arguments, *sets]


def test_nothing_faster_is_exit_code_1_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = OptimizeResult(
        task=suite_task("softmax"),
        best=None,
        best_correct=None,
        asked=2,
        judged=1,
        statuses={"unparsed": 2},
        seconds=3.0,
        stopped_by="budget",
    )
    assert _report(result, tmp_path / "out.py", "sqlite:///x.db") == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "the budget is spent after 3 s: 2 candidates asked for, 2 unparsed"
    assert lines[1] == "no candidate was verified faster; none was correct"
    assert not (tmp_path / "out.py").exists()


@pytest.mark.slow
def test_the_exit_code_the_file_and_the_archive_agree(tmp_path: Path) -> None:
    out = tmp_path / "made" / "kernel.py"
    done = subprocess.run(
        command(tmp_path, "--max-candidates", "2", "--out", str(out)),
        capture_output=True,
        text=True,
        timeout=280,
        cwd=ROOT,
        env=os.environ | {"RAY_TMPDIR": "/tmp"},
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    archive = Archive(str(tmp_path / "optimize" / "archive.db"))
    records = archive.records()
    archive.close()
    assert 1 <= sum(record.source == "policy" for record in records) <= 2  # at most half are template kernels
    confirmed = [r for r in records if r.operator == "confirm" and r.verdict.status is Status.WIN]
    assert (done.returncode == 0) == bool(confirmed) == out.exists()
    if confirmed:
        assert "written by expert" in done.stdout
        assert confirmed[0].record_id in done.stdout
        alone = subprocess.run(  # needs nothing of warpsmith
            [sys.executable, "-I", "-c", f"import runpy; print('ModelNew' in runpy.run_path({str(out)!r}))"],
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert alone.stdout.strip() == "True", alone.stderr
    else:
        assert "no candidate was verified faster" in done.stdout


@pytest.mark.slow
def test_ctrl_c_keeps_what_was_judged_and_leaves_nothing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command(tmp_path, "--max-candidates", "100"),
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=ROOT,
            env=os.environ | {"RAY_TMPDIR": "/tmp"},
        )
    try:
        end = time.monotonic() + 240
        while "expert: " not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()[-3000:]
            time.sleep(0.1)
        family = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 130
    finally:
        process.kill()
    assert not psutil.wait_procs(family, timeout=10)[1]
    assert "Traceback" not in log.read_text()
    assert log.read_text().splitlines()[-1].startswith("warpsmith: interrupted")
    archive = Archive(str(tmp_path / "optimize" / "archive.db"))
    assert archive.count(source="expert") >= 1
    archive.close()
