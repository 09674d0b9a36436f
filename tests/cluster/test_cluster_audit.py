"""`warpsmith audit` on small collections: verdicts beside what was published, and going on after an interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

WARPSMITH = Path(sys.executable).with_name("warpsmith")
REDTEAM = Path(__file__).parents[1] / "redteam"
TASK = (REDTEAM / "task.py").read_text()
GOOD = (REDTEAM / "controls" / "plain.py").read_text()
ZEROS = (REDTEAM / "attacks" / "zeros.py").read_text()
QUICK = ["--set", "judge.pairs=3", "--set", "judge.calls=4", "--set", "judge.call_seconds=3"]

pytestmark = pytest.mark.slow


def audit(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [WARPSMITH, "audit", *map(str, arguments), *QUICK]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, cwd=cwd, check=False)


def write_l1(path: Path, codes: list[Any]) -> None:
    rows = [
        {"level_id": 1, "task_id": number, "ref_code": TASK, "custom_code": code, "score_default": 8.0}
        for number, code in enumerate(codes, start=1)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_published_and_measured_stand_side_by_side(tmp_path: Path) -> None:
    write_l1(tmp_path / "h100.json", [GOOD, ZEROS, "None"])
    done = audit("h100.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip().startswith("level1_")}
    assert rows["level1_1"][1] in ("correct", "win")
    assert rows["level1_1"][2] == "8.00x"
    assert rows["level1_2"][1:] == ["incorrect", "8.00x"]
    assert rows["level1_3"][1:3] == ["not", "judged"]
    assert "1 published as faster were not even correct here" in done.stdout
    again = audit("h100.json", "--json", cwd=tmp_path)
    summary = json.loads(again.stdout)
    assert (summary["entries"], summary["judged"], summary["published"]["count"]) == (3, 2, 2)
    assert "3 of 3 are in runs/audit/h100.jsonl already" in again.stderr
    lines = (tmp_path / "runs" / "audit" / "h100.jsonl").read_text().splitlines()
    assert len(lines) == 3
    other = audit("h100.json", "--set", "judge.warmup_calls=2", cwd=tmp_path)
    assert other.returncode == 2
    assert "other judge settings" in other.stderr


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path: Path) -> None:
    write_l1(tmp_path / "x.json", [f"{ZEROS}# {number}\n" for number in range(30)])
    results = tmp_path / "out.jsonl"
    command = [WARPSMITH, "audit", "x.json", "--out", "out.jsonl", *QUICK]
    running = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while (not results.exists() or results.read_bytes().count(b"\n") < 3) and time.monotonic() < deadline:
        time.sleep(0.02)
    running.send_signal(signal.SIGTERM)
    _, errors = running.communicate(timeout=60)
    assert running.returncode == 130, errors
    kept = results.read_text()
    assert 3 <= kept.count("\n") < 30
    with results.open("a") as file:
        file.write('{"entry_id": "29-')  # what a crash leaves of a line
    done = audit("x.json", "--out", "out.jsonl", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    text = results.read_text()
    assert text.startswith(kept)
    ids = [json.loads(line)["entry_id"] for line in text.splitlines()]
    assert len(ids) == len(set(ids)) == 30


def test_a_kernel_of_the_engineers_archive_is_built_and_judged(tmp_path: Path) -> None:
    """All 19 columns; the kernel is a pybind module in C++, since this machine has no GPU."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from judge.collection import ENGINEER_COLUMNS

    functional = TASK.replace("def forward(self, x, b):", "def forward(self, x, b, fn=None):").replace(
        "return torch.relu(x * 2.0 + b) * x + 1.0", "return fn(x, b)"
    )
    kernel = """
#include <torch/extension.h>
torch::Tensor forward(torch::Tensor x, torch::Tensor b) { return torch::relu(x * 2.0 + b) * x + 1.0; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "relu"); }
"""
    row: dict[str, Any] = dict.fromkeys(ENGINEER_COLUMNS, "")
    row |= {"Level_ID": 1, "Task_ID": 9, "Op_Name": "relu", "Kernel_Name": "relu_v1", "Correct": True}
    row |= {"CUDA_Speedup_Native": 3.0, "CUDA_Speedup_Compile": 2.5, "CUDA_Code": kernel}
    row |= {"PyTorch_Code_Module": TASK, "PyTorch_Code_Functional": functional}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "level_1.parquet")
    done = audit("level_1.parquet", "--json", cwd=tmp_path)
    summary = json.loads(done.stdout)
    assert summary["outcomes"] in ({"correct": 1}, {"win": 1}), done.stderr
    assert summary["published_of_correct"]["geomean"] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no.json"], "no such file"),
        ([".", "--only", "x*"], "no entry's name fits"),
        ([".", "--task", "softmaxx"], "softmax"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, arguments: list[str], words: str) -> None:
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "a.py").write_text(GOOD)
    done = audit(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert words in line
