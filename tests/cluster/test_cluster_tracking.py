"""Metrics survive kills and broken trackers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from archive.store import Archive
from archive.types import Record
from cluster.config import load_config
from cluster.errors import ConfigError
from cluster.tracking import FileMonitor, Tracker, flatten, read_metrics, wandb_mode
from cluster.tracking_extras import COLUMNS, kernel_rows
from judge.types import Status, Verdict


def test_a_line_is_on_disk_when_log_returns(tmp_path: Path) -> None:
    tracker = Tracker.open(load_config(None, ["tracking.wandb=off"]), tmp_path, "abc", "run")
    tracker.log({"step": 1, "statuses": {"win": 2}})
    assert (tmp_path / "metrics.jsonl").read_text() == '{"step": 1, "statuses": {"win": 2}}\n'
    tracker.close(exit_code=0)


def test_lines_are_appended_after_a_resume(tmp_path: Path) -> None:
    for step in (1, 2):
        monitor = FileMonitor(tmp_path / "m.jsonl")
        monitor.log({"step": step})
        monitor.close(exit_code=0)
    assert [line["step"] for line in read_metrics(tmp_path / "m.jsonl")[0]] == [1, 2]


def test_a_torn_line_spoils_neither_its_neighbours_nor_the_reading(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "rew')
    monitor = FileMonitor(path)
    monitor.log({"step": 3})
    monitor.close(exit_code=0)
    lines, unreadable = read_metrics(path)
    assert [line["step"] for line in lines] == [1, 3]
    assert unreadable == 1


def test_reading_before_the_first_step_finds_nothing(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "none.jsonl") == ([], 0)


def test_what_is_not_json_becomes_null(tmp_path: Path) -> None:
    monitor = FileMonitor(tmp_path / "m.jsonl")
    monitor.log({"loss": float("nan"), "deep": {"norm": [float("inf"), 1.0]}})
    monitor.close(exit_code=0)
    text = (tmp_path / "m.jsonl").read_text()
    assert json.loads(text, parse_constant=lambda name: pytest.fail(name)) == {
        "loss": None,
        "deep": {"norm": [None, 1]},
    }


def test_a_folder_that_is_gone_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"m\.jsonl: cannot be written: No such file"):
        FileMonitor(tmp_path / "gone" / "m.jsonl")


def test_flat_names_hold_numbers_only() -> None:
    line = {"step": 1, "stage": "sft", "learner": {"loss": 0.5, "lr": {"group": 1e-3}}, "warnings": ["a", "b"]}
    assert flatten(line) == {"step": 1, "learner/loss": 0.5, "learner/lr/group": 1e-3, "warnings": 2}


@pytest.mark.parametrize(
    ("wanted", "environment", "mode"),
    [
        ("auto", {}, "offline"),
        ("auto", {"WANDB_API_KEY": "k"}, "online"),
        ("auto", {"WANDB_API_KEY": "k", "WANDB_MODE": "offline"}, "offline"),
        ("auto", {"WANDB_MODE": "disabled"}, "off"),
        ("off", {"WANDB_API_KEY": "k"}, "off"),
        ("online", {}, "online"),
    ],
)
def test_wandb_is_online_only_with_a_key(wanted: str, environment: dict[str, str], mode: str) -> None:
    assert wandb_mode(wanted, environment) == mode


PROGRAM = """
import sys
from pathlib import Path
from cluster.config import load_config
from cluster.tracking import Tracker
tracker = Tracker.open(load_config(), Path(sys.argv[1]), "samerunid", "run")
tracker.log({"step": int(sys.argv[2]), "stage": "contrastive", "reward_mean": 0.5})
tracker.close(exit_code=0)
"""


def track(folder: Path, step: int, **extra: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB_")}
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, str(folder), str(step)],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment | extra,
    )


@pytest.mark.slow
def test_an_offline_run_keeps_its_id_after_a_resume_and_says_nothing(tmp_path: Path) -> None:
    for step in (1, 2):
        done = track(tmp_path, step)
        assert done.returncode == 0, done.stderr
        assert done.stdout + done.stderr == ""
    runs = sorted(tmp_path.glob("wandb/offline-run-*"))
    assert len(runs) == 2
    assert {run.name.rsplit("-", 1)[1] for run in runs} == {"samerunid"}
    assert all(list(run.glob("*.wandb")) for run in runs)


@pytest.mark.slow
def test_wandb_out_of_reach_is_one_warning_and_an_offline_run(tmp_path: Path) -> None:
    done = track(tmp_path, 1, WANDB_API_KEY="0" * 40, WANDB_BASE_URL="http://127.0.0.1:9")
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("warpsmith: warning: W&B did not start (")
    assert "logging offline" in line
    assert read_metrics(tmp_path / "metrics.jsonl")[0][0]["step"] == 1
    assert list(tmp_path.glob("wandb/offline-run-*-samerunid"))


def test_undone_steps_are_taken_out_and_later_lines_still_reach_the_file(tmp_path: Path) -> None:
    path = tmp_path / "m.jsonl"
    monitor = FileMonitor(path)
    for stage, step in (("sft", 1), ("contrastive", 1), ("contrastive", 2), ("other", 9)):
        monitor.log({"stage": stage, "step": step})
    monitor.undo({"sft": 1, "contrastive": 1})
    monitor.log({"stage": "contrastive", "step": 2, "again": True})
    assert monitor.has("contrastive", 2)
    assert not monitor.has("sft", 2)
    monitor.close(exit_code=0)
    lines, _ = read_metrics(path)
    assert [(line["stage"], line["step"]) for line in lines] == [
        ("sft", 1),
        ("contrastive", 1),
        ("other", 9),
        ("contrastive", 2),
    ]
    assert lines[-1]["again"]


def test_tensorboard_is_given_every_number_at_its_step(tmp_path: Path) -> None:
    from tensorboardX.proto.event_pb2 import Event

    tracker = Tracker.open(load_config(None, ["tracking.wandb=off", "tracking.tensorboard=true"]), tmp_path, "a", "run")
    for step in (1, 2):
        tracker.log({"step": step, "stage": "contrastive", "reward_mean": 0.5 * step, "learner": {"loss": 3.0}})
    tracker.close(exit_code=0)
    (file,) = (tmp_path / "tensorboard").iterdir()
    raw, place, found = file.read_bytes(), 0, {}
    while place < len(raw):  # TFRecord: length (8 bytes), its checksum (4), the message, its checksum (4)
        length = int.from_bytes(raw[place : place + 8], "little")
        event = Event.FromString(raw[place + 12 : place + 12 + length])
        found |= {(value.tag, event.step): value.simple_value for value in event.summary.value}
        place += 16 + length
    assert found == {
        ("contrastive/reward_mean", 1): 0.5,
        ("contrastive/reward_mean", 2): 1.0,
        ("contrastive/learner/loss", 1): 3.0,
        ("contrastive/learner/loss", 2): 3.0,
    }


def test_the_table_of_kernels_has_the_best_of_each_task(tmp_path: Path) -> None:
    archive = Archive(f"sqlite:///{tmp_path / 'archive.db'}")
    for number, (task, speedup) in enumerate((("gelu", 1.2), ("gelu", 2.5), ("softmax", 1.1))):
        verdict = Verdict(status=Status.WIN, speedup=speedup, speedup_low=speedup - 0.05, speedup_high=speedup + 0.05)
        archive.add(
            Record(
                record_id=str(number),
                run_id="r",
                task_name=task,
                task_id=f"{task}-1",
                source="policy",
                operator="contrast",
                code=f"kernel {number}",
                step=number,
                verdict=verdict,
            )
        )
    archive.close()
    rows = kernel_rows(tmp_path)
    assert [(row[0], row[4], row[-1]) for row in rows] == [("gelu", 2.5, "kernel 1"), ("softmax", 1.1, "kernel 2")]
    assert all(len(row) == len(COLUMNS) for row in rows)


@pytest.mark.slow
def test_wandb_has_the_table_and_the_rollouts(tmp_path: Path) -> None:
    Archive(f"sqlite:///{tmp_path / 'archive.db'}").close()
    (tmp_path / "rollouts.jsonl").write_text('{"kind": "group"}\n')
    done = track(tmp_path, 1)
    assert done.stdout + done.stderr == ""
    (run,) = tmp_path.glob("wandb/offline-run-*")
    assert list(run.glob("files/media/table/kernels_*.table.json"))
    assert b"rollouts-samerunid" in b"".join(path.read_bytes() for path in run.glob("*.wandb"))
