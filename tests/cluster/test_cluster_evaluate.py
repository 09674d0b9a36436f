"""Evaluation of a policy: shares and intervals by hand, and the command on a scripted policy and judge."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import cluster.session
from actors.types import JudgeJob, JudgeResult
from cluster.config import Config, load_config
from cluster.errors import ConfigError
from cluster.evaluate import Plan, evaluate
from cluster.evaluation import Judged, family_of, share, summarise, table
from cluster.session import Session
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.types import Completion, Prompt
from tasks.loader import suite_task, suite_tasks
from tasks.types import Task


def judged(task: str, status: Status, *, family: str = "f", index: int = 0, speedup: float | None = None) -> Judged:
    return Judged(task=task, family=family, index=index, verdict=Verdict(status=status, speedup=speedup), parsed=True)


def test_the_interval_is_over_tasks_not_over_completions() -> None:
    """Four tasks, of which one has all of its completions right: ever so many of them make the interval no narrower."""
    for copies in (2, 200):
        answers = [
            judged(f"t{task}", Status.CORRECT if task == 0 else Status.INCORRECT, index=index)
            for task in range(4)
            for index in range(copies)
        ]
        found = share(answers, lambda answer: answer.verdict.is_correct)
        assert found.value == 0.25
        # P(task 0 drawn k times of 4) is binomial: k = 0 has 0.316, k >= 3 has 0.051, k = 4 has 0.004.
        assert (found.low, found.high) == (0.0, 0.75)


def test_where_all_tasks_agree_the_interval_is_wilsons() -> None:
    answers = [judged(f"t{task}", Status.WIN) for task in range(10)]
    found = share(answers, lambda answer: answer.verdict.is_correct)
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(10 / (10 + 1.96**2))
    none = share(answers, lambda answer: answer.verdict.status is Status.TIMEOUT)
    assert (none.value, none.low) == (0.0, 0.0)
    assert none.high == pytest.approx(1.96**2 / (10 + 1.96**2))


def test_the_summary_counts_by_family_and_the_table_shows_it() -> None:
    answers = [
        judged("a_1", Status.WIN, family="a", speedup=2.0),
        judged("a_1", Status.CORRECT, family="a", index=1, speedup=0.5),
        judged("b_1", Status.INCORRECT, family="b"),
    ]
    summary = summarise(answers)
    assert summary["all"]["tasks"] == 2
    assert summary["all"]["statuses"] == {"correct": 1, "incorrect": 1, "win": 1}
    assert summary["families"]["a"]["correct"]["share"] == 1.0
    assert summary["families"]["a"]["win"]["share"] == 0.5
    assert summary["families"]["a"]["speedup_geomean"] == pytest.approx(1.0)
    assert summary["all"]["tasks_solved"] == 0.5
    assert "speedup_geomean" not in summary["families"]["b"]
    rows = list(table(summary))
    assert [row[0] for row in rows] == ["family", "a", "b", "all"]
    assert {len(row) for row in rows} == {len(rows[0])}


def test_families_are_read_off_generated_names() -> None:
    task = suite_task("softmax")
    assert family_of(task) == "level 1"
    assert family_of(Task(name="row_norm_17", source="")) == "row_norm"
    assert family_of(Task(name="row_norm_long_17", source="")) == "row_norm_long"


class _Policy:
    """Of three answers to a prompt two are the same code and one is no code."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        text = expert_completion("class ModelNew: pass\n", "By memory.")
        return [
            Completion(prompt_id=prompt.prompt_id, index=index, text="I cannot." if index == 2 else text)
            for prompt in prompts
            for index in range(3)
        ]


class _Judge:
    def __init__(self) -> None:
        self.seen: list[str] = []

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            self.seen.append(str(job.task.name))
            status = Status.CORRECT if job.task.name == "softmax" else Status.INCORRECT
            yield JudgeResult(job=job, verdict=Verdict(status=status))


def test_the_same_code_is_judged_once_and_counted_for_each_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Config] = []
    judge = _Judge()

    @contextmanager
    def open_session(config: Config, model_dir: Path, work_dir: Path, on_event: Any, *, learns: bool) -> Any:
        from transformers import AutoTokenizer

        assert not learns
        opened.append(config)
        yield Session(
            rollout=_Policy(), evaluators=judge, learner=None, tokenizer=AutoTokenizer.from_pretrained(model_dir)
        )

    monkeypatch.setattr(cluster.session, "open_session", open_session)
    sources = {"one": [suite_task("softmax")], "other": [suite_task("gelu")]}
    plan = Plan(sources=sources, samples=3, timed=False, out=tmp_path / "out")
    summary = evaluate(load_config(None, ["model.path=tiny-random"]), plan, lambda line: None)
    assert (opened[0].judge.timed, opened[0].rollout.group_size, opened[0].search.operator) == (False, 3, "vanilla")
    assert judge.seen == ["softmax", "gelu"]
    assert summary["all"]["statuses"] == {"correct": 2, "incorrect": 2, "unparsed": 2}
    assert summary["all"]["correct"]["share"] == pytest.approx(2 / 6)
    assert {name: part["correct"]["share"] for name, part in summary["sources"].items()} == {"one": 2 / 3, "other": 0}
    lines = [json.loads(line) for line in (tmp_path / "out" / "answers.jsonl").read_text().splitlines()]
    assert sorted((line["task"], line["index"]) for line in lines) == [
        (n, i) for n in ("gelu", "softmax") for i in (0, 1, 2)
    ]
    assert json.loads((tmp_path / "out" / "summary.json").read_text()) == summary


def test_a_task_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    plan = Plan(sources={"a": [suite_tasks()[0]], "b": [suite_tasks()[0]]}, samples=1, timed=False, out=tmp_path)
    with pytest.raises(ConfigError, match="is there twice"):
        evaluate(load_config(None), plan, lambda line: None)
