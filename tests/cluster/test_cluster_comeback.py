"""A run that loses its learner again and again ends as the run that never did; all in this process, without Ray."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "loop"))

import chaos_run
import recorded
from breaking import differences, result_of

import cluster.driver as driver
from actors.errors import LearnerLostError
from actors.types import JudgeJob, JudgeResult
from cluster.config import Config, load_config
from cluster.session import Session


class Engine(recorded.RecordedEngine):
    """As the pool has it: a probe of each engine."""

    def probe(self, token_ids: Sequence[int]) -> Any:
        return [super().probe(token_ids)]


class Judges:
    def __init__(self) -> None:
        self.judged: list[str] = []
        self._judge = recorded.RecordedJudge(0)
        self._judge._seconds = 0.0

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            self.judged.append(job.job_id)
            yield JudgeResult(job=job, verdict=self._judge.judge(job.task, job.candidate))


class Learner:
    """Dies before the calls whose numbers it is given; a new one knows nothing."""

    def __init__(self, config: Config, deaths: Sequence[int]) -> None:
        self._settings, self._deaths, self._calls, self.restarts = config.learner, set(deaths), 0, 0
        self._begin()

    def _begin(self) -> None:
        self._member: Any = recorded.ChainLearner(0)
        self._member.start("", self._settings)

    def restart(self) -> None:
        self.restarts += 1
        self._begin()

    @property
    def policy_version(self) -> int:
        return int(self._member._version)

    def __getattr__(self, method: str) -> Any:
        def call(*arguments: Any, **named: Any) -> Any:
            self._calls += 1
            if self._calls in self._deaths:
                self._member = None
            if self._member is None:
                raise LearnerLostError(f"the learner died during {method}")
            return getattr(self._member, method)(*(str(a) if isinstance(a, Path) else a for a in arguments), **named)

        return call


def run_with(folder: Path, monkeypatch: pytest.MonkeyPatch, deaths: Sequence[int], *more: str) -> tuple[Any, ...]:
    """(what counts of the run, its learner, its judges, what it said)."""
    import learner.pretrained

    for name in ("JUDGE_SECONDS", "ROLLOUT_SECONDS", "LEARN_SECONDS"):
        monkeypatch.setattr(recorded, name, 0.0)
    monkeypatch.setattr(learner.pretrained, "prepare_model", lambda *_: Path())
    folder.mkdir()
    config = load_config(None, [*chaos_run.overrides(folder), "run.steps=5", "run.learner_restarts=2", *more])
    made: list[Any] = []

    @contextmanager
    def opener(config: Config, model_dir: Path, work_dir: Path, on_event: Any) -> Iterator[Session]:
        engine = Engine(0)
        engine.start("", config.rollout, 0)
        made.extend((Learner(config, deaths), Judges()))
        yield Session(rollout=engine, evaluators=made[1], learner=made[0], tokenizer=recorded.Words())

    said: list[str] = []
    driver.train(config, opener=opener, run_id="r", say=said.append)
    return result_of(folder), *made, "\n".join(said)


pytestmark = pytest.mark.slow


@pytest.mark.parametrize("stale", [(), ("run.max_staleness=1",)])
def test_a_lost_learner_comes_back_from_the_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stale: tuple[str, ...]
) -> None:
    whole, unbroken, judges, _ = run_with(tmp_path / "whole", monkeypatch, [], *stale)
    calls = unbroken._calls
    broken, learner, again, said = run_with(
        tmp_path / "broken", monkeypatch, [3, calls // 3, calls // 2, calls], *stale
    )
    assert learner.restarts == 4
    assert "warning: the learner died during" in said
    assert differences(whole, broken) == []
    # What was judged before a loss is not judged again.
    assert sorted(again.judged) == sorted(judges.judged)
    assert len(set(again.judged)) == len(again.judged)


def test_a_learner_that_dies_again_and_again_without_an_update_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LearnerLostError, match="died during"):
        run_with(tmp_path / "broken", monkeypatch, range(9, 100))
    state = json.loads((tmp_path / "broken" / "chaos" / "state.json").read_text())
    assert not state["finished"]
    assert state["checkpoint"]
