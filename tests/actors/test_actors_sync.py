"""What sync_weights makes of probes that agree and that do not; and what fits an engine. No actor is started."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from actors.errors import ActorError
from actors.rollout import prompt_seed
from actors.sync import mean_difference, sync_weights
from actors.weights import compare_shapes
from learner.types import WeightsVersion


class FakeLearner:
    def __init__(self, events: list[str], logprobs: Sequence[float]) -> None:
        self.events, self.logprobs = events, logprobs

    def publish(self, folder: Path) -> WeightsVersion:
        self.events.append("publish")
        return WeightsVersion(policy_version=3, path=str(folder / "v000003"), sha256="")

    def lend(self) -> WeightsVersion:
        self.events.append("lend")
        return WeightsVersion(policy_version=4, path="", sha256="")

    def probe(self, token_ids: Sequence[int]) -> Sequence[float]:
        self.events.append("probe learner")
        return self.logprobs


class FakeEngines:
    def __init__(self, events: list[str], logprobs: Sequence[Sequence[float]]) -> None:
        self.events, self.logprobs = events, logprobs

    def load_weights(self, version: WeightsVersion) -> None:
        self.events.append(f"load {version.policy_version}")

    def probe(self, token_ids: Sequence[int]) -> Sequence[Sequence[float]]:
        self.events.append("probe engines")
        return self.logprobs


def test_weights_are_published_then_loaded_then_compared(tmp_path: Path) -> None:
    events: list[str] = []
    learner, engines = FakeLearner(events, [-1.0, -2.0]), FakeEngines(events, [[-1.0, -2.0], [-1.1, -1.8]])
    report = sync_weights(learner, engines, tmp_path, (5, 6, 7), max_jump=0.2)
    assert events == ["publish", "load 3", "probe learner", "probe engines"]
    assert report.difference == pytest.approx(0.15)
    assert report.learner_logprobs == (-1.0, -2.0)
    assert report.engine_logprobs == ((-1.0, -2.0), (-1.1, -1.8))
    assert set(report.seconds) == {"publish", "load", "probe"}


def test_weights_in_memory_are_lent_and_no_version_is_written(tmp_path: Path) -> None:
    events: list[str] = []
    learner, engines = FakeLearner(events, [-1.0]), FakeEngines(events, [[-1.0]])
    sync_weights(learner, engines, tmp_path, (5, 6), max_jump=0.2, channel="memory")
    assert events == ["lend", "load 4", "probe learner", "probe engines"]


def test_one_engine_that_disagrees_stops_the_run(tmp_path: Path) -> None:
    learner, engines = FakeLearner([], [-1.0, -2.0]), FakeEngines([], [[-1.0, -2.0], [-1.3, -2.32]])
    with pytest.raises(ActorError, match=r"disagree: mean \|delta logprob\| 0.31 > 0.15 after version 3") as caught:
        sync_weights(learner, engines, tmp_path, (5, 6, 7), max_jump=0.15)
    assert "\n" not in str(caught.value)


def test_nan_is_a_disagreement(tmp_path: Path) -> None:
    with pytest.raises(ActorError, match="disagree"):
        sync_weights(
            FakeLearner([], [-1.0]), FakeEngines([], [[float("nan")], [-1.0]]), tmp_path, (5, 6), max_jump=0.15
        )


def test_probes_of_unequal_length_are_no_average() -> None:
    with pytest.raises(ValueError, match="shorter"):
        mean_difference([1.0, 2.0], [1.0])


def test_every_complaint_about_the_shapes_is_in_one_line() -> None:
    model = {"a": (2, 3), "b": (4,), "c": (1,), "d": (1,)}
    compare_shapes(model, model, "weights")
    with pytest.raises(ActorError) as caught:
        compare_shapes({"a": (3, 2), "b": (4,), "x": (1,)}, model, "weights version 4")
    assert str(caught.value) == (
        "weights version 4 does not fit the engine's model: lacks c and 1 more; has x, which the model does not; "
        "a is [3, 2], in the model [2, 3]"
    )


def test_seeds_differ_by_prompt_and_run_and_fit_31_bits() -> None:
    seeds = {prompt_seed(run, f"s{step:04d}") for run in range(20) for step in range(200)}
    assert len(seeds) == 4000
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert prompt_seed(1, "a") == prompt_seed(1, "a")
