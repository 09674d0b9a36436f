"""Which folder a run works in, and the tasks that its steps deal out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from cluster.config import Config, load_config
from cluster.errors import ConfigError
from cluster.run import tasks_of_step
from cluster.run_folder import open_run
from tasks.types import Task


def config_in(folder: Path, *overrides: str) -> Config:
    return load_config(None, [f"run.folder={folder}", "run.min_free_disk_gb=0", *overrides])


def test_an_unfinished_run_is_continued_and_says_so(tmp_path: Path) -> None:
    folder, state, message = open_run(config_in(tmp_path))
    assert "starting a new run" in message
    folder.write_state(state.model_copy(update={"step": 2}))
    folder.close()
    again, later, message = open_run(config_in(tmp_path))
    assert again.path == folder.path
    assert later.step == 2
    assert later.run_id == state.run_id
    assert later.wandb_id == state.wandb_id
    assert "continuing" in message
    assert "2 of 3 steps" in message
    again.close()


def test_a_finished_run_is_left_alone_unless_more_steps_are_asked(tmp_path: Path) -> None:
    folder, state, _ = open_run(config_in(tmp_path))
    folder.write_state(state.model_copy(update={"step": 3, "finished": True}))
    folder.close()
    other, _, message = open_run(config_in(tmp_path))
    assert other.path.name == "cpu-2"
    assert "is finished" in message
    other.close()
    longer, state, message = open_run(config_in(tmp_path, "run.steps=5"))
    assert longer.path.name == "cpu"
    assert "3 of 5 steps" in message
    longer.close()


def test_another_configuration_or_fresh_starts_a_new_folder(tmp_path: Path) -> None:
    open_run(config_in(tmp_path))[0].close()
    changed, _, message = open_run(config_in(tmp_path, "learner.lr=1e-6"))
    assert changed.path.name == "cpu-2"
    assert "another configuration" in message
    changed.close()
    fresh, _, message = open_run(config_in(tmp_path), fresh=True)
    assert fresh.path.name == "cpu-3"
    fresh.close()


def test_two_drivers_never_share_a_folder(tmp_path: Path) -> None:
    folder, _, _ = open_run(config_in(tmp_path))
    with pytest.raises(ConfigError, match="another driver"):
        open_run(config_in(tmp_path))
    folder.close()
    open_run(config_in(tmp_path))[0].close()


def test_too_little_disk_is_refused_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"GB free, 1e\+09 GB needed") as error:
        open_run(config_in(tmp_path, "run.min_free_disk_gb=1e9"))
    assert "\n" not in str(error.value)


def test_a_torn_state_file_is_named(tmp_path: Path) -> None:
    folder, _, _ = open_run(config_in(tmp_path))
    folder.close()
    (folder.path / "state.json").write_text('{"step": 1')
    with pytest.raises(ConfigError, match=r"state\.json: unreadable"):
        open_run(config_in(tmp_path))


def test_each_epoch_deals_every_task_once_in_an_order_of_its_own() -> None:
    tasks = tuple(Task(name=f"t{i}", source=str(i)) for i in range(7))
    dealt = [task.name for step in range(1, 15) for task in tasks_of_step(tasks, step, 3, seed=5)]
    assert dealt == [task.name for step in range(1, 15) for task in tasks_of_step(tasks, step, 3, seed=5)]
    for epoch in range(6):
        assert Counter(dealt[epoch * 7 : epoch * 7 + 7]) == Counter(task.name for task in tasks)
    assert dealt[:7] != dealt[7:14]
    assert dealt[:7] != [t.name for t in tasks_of_step(tasks, 1, 7, seed=6)]
