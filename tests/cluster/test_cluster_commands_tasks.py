from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster.cli import run
from tasks.loader import load_task


def _error(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert run([str(argument) for argument in arguments]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_generated_tasks_are_files_with_kernels_beside_them(tmp_path: Path) -> None:
    assert run(["tasks", "generate", str(tmp_path), "--tasks", "2", "--seed", "3", "--kernels", "cpp"]) == 0
    folders = sorted(tmp_path.iterdir())
    assert len(folders) == 2
    for folder in folders:
        assert load_task(folder).name == folder.name
        assert len(list(folder.glob("cpp_*.py"))) >= 4


def test_errors_of_use_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "corpus.jsonl"
    assert "no magic; choose among plain, contrast, repair" in _error(
        capsys, "tasks", "corpus", out, "--kinds", "plain,magic"
    )
    assert "no family of tasks" in _error(capsys, "tasks", "generate", tmp_path, "--family", "convolution")
    assert "cannot be read" in _error(capsys, "tasks", "decontaminate", tmp_path / "none.jsonl", "suite")
    assert "no such file" in _error(capsys, "tasks", "new", tmp_path / "none.py")
    (tmp_path / "op.py").write_text("import torch\n\n\ndef op(x):\n    return x\n")
    assert "no sample inputs; add a line" in _error(capsys, "tasks", "new", tmp_path / "op.py")


def test_duplicates_are_named_and_the_exit_code_says_no(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"seed": seed, "split": "train"}) + "\n" for seed in (2, 3, 3)))
    assert run(["tasks", "decontaminate", str(corpus), "procedural:test:3", "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert (report["train"], report["test"], report["untraced"]) == (2, 3, 0)
    assert run(["tasks", "decontaminate", "procedural:test:3", "procedural:test:3"]) == 1
    shown = capfd.readouterr().out
    assert shown.count("exact: ") == 3 and "3 exact" in shown


def test_a_new_task_is_written_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "op.py"
    source.write_text("import torch\n\n\ndef op(x):\n    return x.relu()\n\n\nsample_inputs = [torch.randn(8, 8)]\n")
    assert run(["tasks", "new", str(source), "--no-admit"]) == 0
    assert load_task(tmp_path / "op_task.py").name == "op_task"
    assert run(["tasks", "new", str(source), "--no-admit"]) == 0
    source.write_text(source.read_text().replace("relu", "tanh"))
    assert "exists; name another file with --out" in _error(capsys, "tasks", "new", source, "--no-admit")
