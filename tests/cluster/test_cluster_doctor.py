"""The doctor finds what is missing and says what to do."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from cluster import doctor
from cluster.config import load_config
from cluster.doctor import Finding, print_findings


def test_this_machine_passes(tmp_path: Path) -> None:
    config = load_config(None, [f"run.folder={tmp_path}", "run.min_free_disk_gb=0"])
    missing = [finding for finding in doctor.examine(config) if finding.state == "missing" and finding.name != "memory"]
    assert not missing


def test_one_missing_thing_is_exit_code_1_and_a_remedy(capsys: pytest.CaptureFixture[str]) -> None:
    fine = Finding(name="python", state="ok", text="3.11.7")
    gone = Finding(name="compiler", state="missing", text="g++: not there", remedy="install it")
    note = Finding(name="gpu", state="note", text="none")
    assert print_findings([fine, note]) == 0
    assert print_findings([fine, gone, note]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert "missing compiler      g++: not there; install it" in lines
    assert lines[-1].startswith("1 missing")


@pytest.mark.parametrize(
    ("version", "state"),
    [((3, 10, 9), "missing"), ((3, 11, 0), "ok"), ((3, 14, 1), "ok"), ((3, 15, 0), "missing")],
)
def test_python_versions(version: tuple[int, int, int], state: str) -> None:
    assert doctor.python_version(version).state == state


def test_a_compiler_that_is_not_there() -> None:
    finding = doctor.compiler("no-such-compiler")
    assert finding.state == "missing"
    assert "apt-get install g++" in finding.remedy


def test_a_compiler_that_cannot_build(tmp_path: Path) -> None:
    broken = tmp_path / "cxx"
    broken.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'broken 1.0' || exit 1\n")
    broken.chmod(0o755)
    finding = doctor.compiler(str(broken))
    assert finding.state == "missing"
    assert finding.text == "broken 1.0 cannot build OpenMP C++17"


def test_too_little_memory_and_disk(tmp_path: Path) -> None:
    assert doctor.memory(4.0).state == "missing"
    assert doctor.memory(64.0).state == "ok"
    assert doctor.disk(tmp_path / "not" / "yet" / "there", 1e9).state == "missing"
    assert doctor.disk(tmp_path / "not" / "yet" / "there", 0).state == "ok"
    assert not (tmp_path / "not").exists()


def test_memory_is_no_more_than_the_machine_has() -> None:
    import psutil

    assert 0 < doctor.available_memory_gb() <= psutil.virtual_memory().total / 1e9


def test_a_port_that_somebody_listens_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        number = server.getsockname()[1]
        finding = doctor.port("127.0.0.1", number)
        assert finding.state == "note"
        assert "in use" in finding.text
        assert "--port" in finding.remedy
    assert doctor.port("127.0.0.1", number).state == "ok"


def test_a_package_under_either_name_and_one_that_is_missing() -> None:
    assert doctor.package(("no-such-distribution", "pydantic")).state == "ok"
    assert doctor.package(("no-such-distribution",)).remedy == "run ./setup.sh"


def test_a_model_that_does_not_exist(tmp_path: Path) -> None:
    assert doctor.model(str(tmp_path)).state == "missing"
    (tmp_path / "config.json").write_text("{}")
    assert doctor.model(str(tmp_path)).state == "ok"
    assert doctor.model("tiny-random").state == "ok"


def test_a_gpu_is_missing_only_where_a_role_needs_one(monkeypatch: pytest.MonkeyPatch) -> None:
    config = load_config(None, ["search.backend=cuda", "learner.gpus=0.5"])
    assert doctor.roles_on_gpu(config) == ("judge", "learner")
    monkeypatch.setattr(doctor.shutil, "which", lambda name: None)
    found = doctor.gpu(("judge", "learner"))
    assert (found.state, found.remedy) == ("missing", "search.backend=cpp rollout.gpus=0 learner.gpus=0 does without")
    assert "wanted by judge, learner" in found.text
    assert doctor.gpu(()).state == "note"
