"""The search loop with scripted answers and scripted judges: what it asks, keeps, confirms and reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from archive.types import Record
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.settings import SearchSettings
from search.types import Completion, Prompt
from serving.optimizer import CONFIRM, COPY, Workbench, optimize_task
from tasks.errors import TaskError
from tasks.experts import expert_kernels
from tasks.loader import parse_task, suite_task
from tasks.types import Task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return x + 1

def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""


def kernel(name: str) -> str:
    """A candidate file that no other name shares."""
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {name}(x)\n"


def answer(name: str) -> str:
    return expert_completion(kernel(name), "bound by memory")


def win(low: float, speedup: float | None = None) -> Verdict:
    middle = speedup or low * 1.1
    return Verdict(status=Status.WIN, speedup=middle, speedup_low=low, speedup_high=middle * 1.1, best_baseline="eager")


CORRECT = Verdict(status=Status.CORRECT, speedup=0.9, speedup_low=0.8, speedup_high=1.0, best_baseline="eager")
WRONG = Verdict(status=Status.INCORRECT, message="wrong")


@dataclass
class ScriptedRollout:
    """Answers groups of two from a list; the last answer is repeated for ever."""

    answers: list[str]
    prompts: list[Prompt] = field(default_factory=list)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.prompts += prompts
        return [
            Completion(prompt_id=prompt.prompt_id, index=index, text=self._next(), policy_version=3)
            for prompt in prompts
            for index in range(2)
        ]

    def count_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        return len(messages[0]["content"]) // 4

    def _next(self) -> str:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@dataclass
class ScriptedJudges:
    """A verdict for each code by the name in it; several verdicts are given one after the other."""

    verdicts: dict[str, list[Verdict]]
    judged: list[str] = field(default_factory=list)
    task_error: str = ""

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            code = job.candidate.code
            name = next((name for name in self.verdicts if f"{name}(x)" in code), "")
            self.judged.append(name or "reference")
            script = self.verdicts.get(name, [CORRECT])
            verdict = script.pop(0) if len(script) > 1 else script[0]
            yield JudgeResult(job=job, verdict=verdict, task_error=self.task_error)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    store = Archive(str(tmp_path / "archive.db"))
    yield store
    store.close()


@pytest.fixture
def task() -> Task:
    return parse_task(TASK)


def bench(archive: Archive, rollout: ScriptedRollout, judges: ScriptedJudges) -> Workbench:
    return Workbench(rollout=rollout, evaluators=judges, archive=archive, search=SearchSettings())


def test_a_win_is_confirmed_and_the_confirmation_is_what_is_reported(archive: Archive, task: Task) -> None:
    judges = ScriptedJudges({"fast": [win(1.9), win(1.5)], "slow": [CORRECT]})
    result = optimize_task(
        task, bench(archive, ScriptedRollout([answer("fast"), answer("slow")]), judges), max_candidates=2
    )
    assert result.best is not None
    assert result.best.operator == CONFIRM
    assert result.best.verdict.speedup_low == 1.5
    assert result.best.code.strip() == kernel("fast").strip()
    assert result.best_correct is None
    assert judges.judged == ["reference", "fast", "slow", "fast"]
    (original,) = [record for record in archive.records() if record.record_id == result.best.parents[0]]
    assert original.verdict.speedup_low == 1.9
    assert original.policy_version == 3


def test_a_win_that_is_not_confirmed_gives_way_to_the_next(archive: Archive, task: Task) -> None:
    judges = ScriptedJudges({"lucky": [win(1.9), CORRECT], "solid": [win(1.2), win(1.2)]})
    rollout = ScriptedRollout([answer("lucky"), answer("solid")])
    result = optimize_task(task, bench(archive, rollout, judges), max_candidates=2)
    assert result.best is not None
    assert "solid(x)" in result.best.code


def test_nothing_faster_is_said_with_the_best_correct_one(archive: Archive, task: Task) -> None:
    judges = ScriptedJudges({"lucky": [win(1.9), CORRECT], "wrong": [WRONG]})
    result = optimize_task(
        task, bench(archive, ScriptedRollout([answer("lucky"), answer("wrong")]), judges), max_candidates=2
    )
    assert result.best is None
    assert result.best_correct is not None
    assert "lucky(x)" in result.best_correct.code


def test_a_confirmed_win_of_an_earlier_search_is_not_measured_again(archive: Archive, task: Task) -> None:
    first = ScriptedJudges({"fast": [win(1.9), win(1.5)], "slow": [CORRECT]})
    optimize_task(task, bench(archive, ScriptedRollout([answer("fast"), answer("slow")]), first), max_candidates=2)
    second = ScriptedJudges({"slow": [CORRECT]})
    result = optimize_task(task, bench(archive, ScriptedRollout([answer("slow")]), second), max_candidates=2)
    assert second.judged == []
    assert result.best is not None
    assert result.best.verdict.speedup_low == 1.5


def test_no_more_candidates_are_judged_than_were_asked_for(archive: Archive, task: Task) -> None:
    rollout = ScriptedRollout([answer(f"k{number}") for number in range(10)])
    result = optimize_task(task, bench(archive, rollout, ScriptedJudges({})), max_candidates=3)
    assert result.asked == 3
    assert len(rollout.prompts) == 2
    assert archive.count(source="policy") == 3
    assert result.stopped_by == "candidates"


def test_the_same_code_is_judged_once(archive: Archive, task: Task) -> None:
    judges = ScriptedJudges({"same": [WRONG]})
    result = optimize_task(task, bench(archive, ScriptedRollout([answer("same")]), judges), max_candidates=6)
    assert judges.judged == ["reference", "same"]
    flags = [COPY in record.verdict.flags for record in archive.records()]
    assert flags == [False, True, True, True, True, True]
    assert result.statuses == {"incorrect": 6}


def test_an_answer_without_code_is_a_record_and_costs_no_judge(archive: Archive, task: Task) -> None:
    judges = ScriptedJudges({})
    result = optimize_task(task, bench(archive, ScriptedRollout(["I cannot."]), judges), max_candidates=2)
    assert judges.judged == ["reference"]
    assert result.statuses == {"unparsed": 2}
    assert result.best is None
    assert result.best_correct is None
    assert all(record.completion == "I cannot." and not record.code for record in archive.records())


def test_a_record_is_in_the_archive_before_it_is_told(archive: Archive, task: Task) -> None:
    heard: list[str] = []

    def on_record(record: Record, asked: int) -> None:
        assert archive.get(record.record_id) == record
        heard.append(record.record_id)

    judges = ScriptedJudges({"fast": [win(1.9), win(1.5)], "slow": [WRONG]})
    rollout = ScriptedRollout([answer("fast"), "nothing", answer("slow"), answer("fast")])
    optimize_task(task, bench(archive, rollout, judges), max_candidates=4, on_record=on_record)
    assert sorted(heard) == sorted(record.record_id for record in archive.records())


def test_earlier_records_are_exemplars_of_later_prompts_and_confirmations_are_not(archive: Archive, task: Task) -> None:
    first = ScriptedJudges({"fast": [win(1.9), win(1.5)], "slow": [CORRECT]})
    rollout = ScriptedRollout([answer("fast"), answer("slow")])
    optimize_task(task, bench(archive, rollout, first), max_candidates=2)
    assert rollout.prompts[0].operator == "vanilla"
    shown = {record.record_id for record in archive.records() if record.operator != CONFIRM}
    again = ScriptedRollout([answer("slow")])
    optimize_task(task, bench(archive, again, ScriptedJudges({})), max_candidates=2)
    assert again.prompts[0].operator == "contrast"
    assert set(again.prompts[0].exemplar_ids) == shown


def test_expert_kernels_of_a_suite_task_are_judged_once_and_count(archive: Archive) -> None:
    softmax = suite_task("softmax")
    judges = ScriptedJudges({})
    rollout = ScriptedRollout(["nothing"])
    optimize_task(softmax, bench(archive, rollout, judges), max_candidates=2)
    experts = len(expert_kernels("softmax"))
    assert archive.count(source="expert") == experts
    assert len(judges.judged) == 1 + experts
    assert rollout.prompts[0].operator == "contrast"
    optimize_task(softmax, bench(archive, ScriptedRollout(["nothing"]), judges), max_candidates=2)
    assert len(judges.judged) == 1 + experts


def test_a_task_that_fails_is_an_error_before_the_policy_is_asked(archive: Archive, task: Task) -> None:
    rollout = ScriptedRollout(["nothing"])
    with pytest.raises(TaskError, match="no inputs"):
        optimize_task(task, bench(archive, rollout, ScriptedJudges({}, task_error="task: no inputs")), max_candidates=2)
    assert rollout.prompts == []


def test_a_reference_that_fails_against_itself_is_an_error(archive: Archive, task: Task) -> None:
    class Contrary(ScriptedJudges):
        def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
            return (JudgeResult(job=job, verdict=WRONG) for job in jobs)

    with pytest.raises(TaskError, match="does not pass as a candidate of its own"):
        optimize_task(task, bench(archive, ScriptedRollout(["nothing"]), Contrary({})), max_candidates=2)


@pytest.mark.parametrize(("budget", "stop", "why"), [(1e-9, None, "budget"), (None, lambda: True, "caller")])
def test_budget_and_caller_end_the_search(
    archive: Archive, task: Task, budget: float | None, stop: Callable[[], bool] | None, why: str
) -> None:
    rollout = ScriptedRollout([answer("slow")])
    result = optimize_task(
        task,
        bench(archive, rollout, ScriptedJudges({})),
        max_candidates=100,
        budget_seconds=budget,
        should_stop=stop,
    )
    assert result.stopped_by == why
    assert result.asked == 0
    assert rollout.prompts == []
