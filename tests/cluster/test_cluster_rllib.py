"""The face to RLlib and Tune: iterations, metrics, checkpoints, sweeps."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPEC = importlib.util.spec_from_file_location("scripted", Path(__file__).with_name("scripted.py"))
assert SPEC and SPEC.loader
SPEC.loader.exec_module(helper := importlib.util.module_from_spec(SPEC))
STEPS = 3


def overrides(folder: Path, **more: Any) -> dict[str, Any]:
    pairs = dict(pair.split("=", 1) for pair in helper.overrides_in(folder, f"run.steps={STEPS}"))
    return pairs | {key.replace("__", "."): value for key, value in more.items()}


def algorithm(folder: Path, **more: Any) -> Any:
    from cluster.rllib import WarpsmithAlgorithm, WarpsmithConfig

    class Scripted(WarpsmithAlgorithm):
        opener: ClassVar[Any] = staticmethod(helper.scripted([]))

    return WarpsmithConfig(Scripted).warpsmith(overrides=overrides(folder, **more)).build_algo()


def test_iterations_are_the_steps_of_a_run_and_a_checkpoint_goes_on_bit_for_bit(tmp_path: Path) -> None:
    algo = algorithm(tmp_path / "a")
    first = algo.train()
    assert (first["step"], first["training_iteration"], first["done"]) == (1, 1, False)
    logged = json.loads((tmp_path / "a/cpu/metrics.jsonl").read_text().splitlines()[-1])
    assert first["reward_mean"] == logged["reward_mean"]
    assert first["learner"]["loss"] == logged["learner"]["loss"]
    saved = algo.save_to_path(tmp_path / "saved")
    last = [algo.train() for _ in range(STEPS - 1)][-1]
    assert last["done"] and last["step"] == STEPS
    with pytest.raises(Exception, match=r"run\.steps = 3 are done"):
        algo.train()
    algo.stop()
    assert (tmp_path / "a/cpu/report.html").exists()

    other = algorithm(tmp_path / "b")
    other.restore_from_path(saved)
    assert other.iteration == 1
    assert [other.train()["step"] for _ in range(STEPS - 1)] == [2, 3]
    other.stop()
    one, two = tmp_path / "a/cpu", tmp_path / "b/cpu"
    assert helper.batches(one) == helper.batches(two)
    assert helper.losses(one) == helper.losses(two)
    assert helper.weights(one) == helper.weights(two)


def test_a_learning_rate_may_change_at_a_checkpoint(tmp_path: Path) -> None:
    algo = algorithm(tmp_path / "a")
    algo.train()
    saved = algo.save_to_path()
    algo.stop()
    other = algorithm(tmp_path / "b", learner__lr=5e-3)
    other.restore_from_path(saved)
    result = other.train()
    other.stop()
    assert result["step"] == 2
    assert result["learner"]["lr"] == 5e-3
    assert json.loads((tmp_path / "b/cpu/config.json").read_text())["learner"]["lr"] == 5e-3


def test_bad_use_is_one_line(tmp_path: Path) -> None:
    from cluster.errors import ConfigError
    from cluster.rllib import WarpsmithAlgorithm, resolve

    with pytest.raises(ConfigError, match=r"unknown key learner\.rl: did you mean learner\.lr"):
        resolve(None, {"learner.rl": 1})
    algo = algorithm(tmp_path)
    with pytest.raises(ConfigError, match="nothing to save yet"):
        algo.save_to_path(tmp_path / "x")
    with pytest.raises(ConfigError, match="no checkpoint of warpsmith's"):
        algo.restore_from_path(tmp_path / "none")
    with pytest.raises(ConfigError, match="no checkpoint of warpsmith's"):
        WarpsmithAlgorithm.from_checkpoint(tmp_path / "none")
    with pytest.raises(ConfigError, match=r"run\.max_staleness"):
        algorithm(tmp_path, run__max_staleness=1, learner__keep_versions=4)
    algo.stop()


@pytest.mark.nightly
def test_tune_sweeps_with_real_engines_and_the_best_trial_has_a_checkpoint(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "examples/tune/sweep.py", "--tiny", "--folder", tmp_path],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), "RAY_TMPDIR": "/tmp"},
        capture_output=True,
        text=True,
        timeout=550,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    best = json.loads(done.stdout.strip().splitlines()[-1])
    assert best["best_lr"] in (1e-4, 4e-4)
    state = json.loads((Path(best["checkpoint"]) / "run" / "state.json").read_text())
    assert state["step"] == 1
    assert done.stdout.count("after 1 steps, None") == 2


def test_a_trial_asks_for_a_place_for_each_actor() -> None:
    from cluster.rllib import WarpsmithAlgorithm

    asked = WarpsmithAlgorithm.default_resource_request(
        {"overrides": {"rollout.actors": 2, "rollout.gpus": 1, "evaluators.actors": 3}}
    )
    # its own process; two engines; three judges and the learner
    assert asked.bundles == [{"CPU": 0.5}, *[{"CPU": 0.5, "GPU": 1.0}] * 2, *[{"CPU": 0.5}] * 4]
