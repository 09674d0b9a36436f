"""The preset of one GPU: it is read, its parts fit each other, and it can be rehearsed without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster.config import load_config
from cluster.errors import ConfigError
from cluster.run import resolve_tasks

PRESET = str(Path(__file__).parents[2] / "configs" / "h200.toml")
REHEARSAL = ["search.backend=cpp", "rollout.gpus=0", "learner.gpus=0", 'tasks.names=["softmax"]']


def test_the_judge_follows_the_language() -> None:
    assert load_config(PRESET).judge.device == "cuda"
    assert load_config(PRESET, REHEARSAL).judge.device == "cpu"
    assert load_config(None).judge.device == "cpu"
    assert load_config(None, ["search.backend=cuda", "judge.device=cpu"]).judge.device == "cpu"


def test_kernels_of_one_device_are_not_judged_on_the_other() -> None:
    with pytest.raises(ConfigError, match=r'judged on cuda, judge\.device is "cpu"'):
        resolve_tasks(load_config(None, ["search.backend=cuda", "judge.device=cpu"]))
    with pytest.raises(ConfigError, match=r"judge\.timed is false"):
        resolve_tasks(load_config(None, ["judge.timed=false"]))


def test_three_roles_fit_on_one_gpu() -> None:
    config = load_config(PRESET)
    shares = config.rollout.gpus + config.learner.gpus + config.evaluators.actors * config.evaluators.gpus
    assert shares <= 1.0
    assert config.rollout.gpus > 0
    assert config.learner.gpus > 0


def test_the_rehearsal_resolves() -> None:
    (task,) = resolve_tasks(load_config(PRESET, REHEARSAL))
    assert task.name == "softmax"
