"""Evolution with scripted models and scripted judges: what it asks whom, keeps, follows up, and how it goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actors.endpoint import LOST
from actors.models import Models
from actors.spending import Call, Spending
from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from judge.task_trace import trace_task
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.settings import PRESETS, EvolutionSettings, SearchSettings
from search.sweep import find_knobs
from search.templates import Templates, make_templates
from search.types import Completion, Prompt
from serving.answers import AnswerLog
from serving.evolution import SWEEP, TEMPLATE, TRANSPLANT, evolve_task, pulls_of
from serving.optimizer import CONFIRM, OptimizeResult, Workbench
from tasks.loader import parse_task
from tasks.types import Task

TASK = """
import torch

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.softmax(x, -1)

def get_inputs():
    return [torch.randn(4, 4)]

def get_init_inputs():
    return []
"""
PLAN = EvolutionSettings(proposals=2, edits=1, transplants=0, sweep_trials=0, islands=1)


def kernel(speed: float, block: int = 64) -> str:
    return f"SPEED_{speed:.2f} = '''\n#define BLOCK {block}\n'''\n\n\nclass ModelNew:\n    speed = {speed}\n".replace(
        ".", "_", 1
    )


@dataclass
class Policy:
    """Writes the next kernel of a list to each prompt; None is an answer without code."""

    speeds: list[float | None]
    prompts: list[Prompt] = field(default_factory=list)

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        self.prompts += prompts
        return [Completion(prompt_id=prompt.prompt_id, index=0, text=self.text(prompt)) for prompt in prompts]

    def count_tokens(self, messages: Sequence[object]) -> int:
        return 10

    def text(self, prompt: Prompt) -> str:
        speed = self.speeds.pop(0) if len(self.speeds) > 1 else self.speeds[0]
        if speed is None:
            return "I cannot."
        if prompt.edits:
            line = next(line for line in prompt.edits.splitlines() if "speed =" in line)
            return f"<<<<<<< SEARCH\n{line}\n=======\n    speed = {speed}\n>>>>>>> REPLACE"
        return expert_completion(kernel(speed), "bound by memory")


@dataclass
class Judges:
    """Reads the speed off the code; 0 is wrong. A kernel with BLOCK 256 is half as fast again."""

    judged: list[str] = field(default_factory=list)

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            code = job.candidate.code
            self.judged.append(code)
            speed = float(code.split("speed = ")[1].split()[0]) if "speed = " in code else 1.0
            speed *= 1.5 if "BLOCK 256" in code else 1.0
            wrong = Verdict(status=Status.INCORRECT, message="wrong at [0]")
            low = speed * 0.95
            status = Status.WIN if low > 1.01 else Status.CORRECT
            right = Verdict(
                status=status, speedup=speed, speedup_low=low, speedup_high=speed * 1.05, best_baseline="eager"
            )
            yield JudgeResult(job=job, verdict=right if speed else wrong)


def written(archive: Archive, *sources: str) -> int:
    """Records of these writers, confirmations left out."""
    return sum(record.source in sources and record.operator != CONFIRM for record in archive.records())


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    store = Archive(str(tmp_path / "archive.db"))
    yield store
    store.close()


@pytest.fixture
def task() -> Task:
    return parse_task(TASK)


def run(
    archive: Archive,
    task: Task,
    policy: Policy | None,
    plan: EvolutionSettings = PLAN,
    *,
    judges: Judges | None = None,
    candidates: int = 6,
    **more: object,
) -> OptimizeResult:
    models = Models(policy=policy)
    settings = SearchSettings(max_prompt_tokens=100_000)
    bench = Workbench(rollout=models, evaluators=judges or Judges(), archive=archive, search=settings)
    return evolve_task(task, bench, plan, models, max_candidates=candidates, **more)  # type: ignore[arg-type]


def test_failures_are_repaired_correct_kernels_edited_and_the_best_is_confirmed(archive: Archive, task: Task) -> None:
    policy = Policy([0.0, 1.2, 1.3, 1.6])
    result = run(archive, task, policy, candidates=4)
    assert [prompt.operator for prompt in policy.prompts[2:]] == ["repair", "edit"]
    failed = next(record for record in archive.records() if record.verdict.status is Status.INCORRECT)
    assert policy.prompts[2].exemplar_ids == (failed.record_id,)
    assert "wrong at [0]" in policy.prompts[2].messages[0]["content"]
    assert result.best is not None
    assert result.best.operator == CONFIRM
    assert result.best.verdict.speedup == pytest.approx(1.6)
    assert (result.asked, result.stopped_by) == (4, "candidates")


def test_after_three_failed_repairs_the_search_translates_anew(archive: Archive, task: Task) -> None:
    class Failing(Policy):
        def text(self, prompt: Prompt) -> str:
            number = len(self.prompts) * 1000 + int(prompt.prompt_id.count("e"))
            return expert_completion(f"class ModelNew:\n    speed = 0\n    n = {number}\n", "no idea")

    policy = Failing([0.0])
    plan = PLAN.model_copy(update={"proposals": 1, "edits": 0, "operators": ("translate", "repair")})
    run(archive, task, policy, plan, candidates=40)
    asked = [prompt.operator for prompt in policy.prompts]
    runs = "".join(name[0] for name in asked).split("t")
    assert "rrrr" not in "".join(name[0] for name in asked)
    assert any(len(one) == 3 for one in runs)


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_runs_and_keeps_to_its_candidates(archive: Archive, task: Task, preset: str) -> None:
    policy = Policy([1.1 + number / 100 for number in range(40)])
    result = run(archive, task, policy, PRESETS[preset], candidates=10)
    assert result.asked == 10
    assert written(archive, "policy", SWEEP, TRANSPLANT) == 10
    assert result.best is not None
    operators = {prompt.operator for prompt in policy.prompts}
    assert operators <= {*PRESETS[preset].operators, "vanilla", "functional", "edit", "repair"}


def test_without_a_model_similar_kernels_and_the_sweep_do_the_work(archive: Archive, task: Task) -> None:
    plan = PLAN.model_copy(update={"transplants": 2, "sweep_trials": 3})
    result = run(archive, task, None, plan, candidates=1000)
    assert archive.count(source=TRANSPLANT) == 2
    swept = archive.records(source=SWEEP)
    assert swept
    assert all(record.parents for record in swept)
    assert result.stopped_by == "exhausted"


@pytest.fixture(scope="module")
def templates() -> Templates:
    task = parse_task(TASK)
    return make_templates(task, trace_task(task))


@dataclass
class SingleMinded(Judges):
    """Kernels without threads are the faster ones."""

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
        for job in jobs:
            self.judged.append(job.candidate.code)
            speed = 1.2 if "parallel" in job.candidate.code else 1.6
            verdict = Verdict(
                status=Status.WIN,
                speedup=speed,
                speedup_low=speed - 0.1,
                speedup_high=speed + 0.1,
                best_baseline="eager",
            )
            yield JudgeResult(job=job, verdict=verdict)


def test_templates_are_kernels_of_a_task_that_no_model_has_seen(
    archive: Archive, task: Task, templates: Templates
) -> None:
    plan = PLAN.model_copy(update={"templates": 2, "sweep_trials": 2})
    result = run(archive, task, None, plan, candidates=12, judges=SingleMinded(), templates=templates)
    made = archive.records(source=TEMPLATE)
    assert result.best is not None
    assert result.best.verdict.speedup == 1.6
    assert "parallel" not in result.best.code
    assert len({record.code for record in made if record.operator != CONFIRM}) > 2
    assert result.asked == 12
    assert archive.count(source=TRANSPLANT) == 0


def test_templates_leave_half_of_the_candidates_to_models(archive: Archive, task: Task, templates: Templates) -> None:
    plan = PLAN.model_copy(update={"edits": 0, "templates": 8})
    run(archive, task, Policy([2.0, 2.1]), plan, candidates=4, judges=SingleMinded(), templates=templates)
    assert written(archive, TEMPLATE) == 2
    assert written(archive, "policy") == 2


def test_the_sweep_finds_the_faster_setting_of_a_models_kernel(archive: Archive, task: Task) -> None:
    plan = PLAN.model_copy(update={"edits": 0, "proposals": 1, "sweep_trials": 4})
    result = run(archive, task, Policy([1.2, None]), plan, candidates=12)
    assert result.best is not None
    assert find_knobs(result.best.code)[0].value == "256"
    assert result.best.verdict.speedup == pytest.approx(1.8)
    assert result.best.source == SWEEP


def test_a_resumed_search_judges_what_was_paid_for_and_asks_for_the_rest(
    archive: Archive, task: Task, tmp_path: Path
) -> None:
    class Interrupted(Judges):
        def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
            for number, result in enumerate(super().judge(jobs)):
                if number == 1 or "1.4" in result.job.candidate.code:
                    raise KeyboardInterrupt
                yield result

    answers = AnswerLog(tmp_path / "answers.jsonl")
    policy = Policy([1.3, 1.4, 1.5])
    with pytest.raises(KeyboardInterrupt):
        run(archive, task, policy, judges=Interrupted(), answers=answers, run_id="optimize-1")
    assert archive.count(source="policy") == 1
    again = Policy([1.7, 1.8, 1.9])
    judges = Judges()
    result = run(archive, task, again, judges=judges, candidates=4, answers=answers, run_id="optimize-1")
    assert "speed = 1.4" in judges.judged[0]
    assert len(policy.prompts) + len(again.prompts) == result.asked == 4
    assert written(archive, "policy") == 4
    ids = [prompt.prompt_id for prompt in (*policy.prompts, *again.prompts)]
    assert len(set(ids)) == 4


def test_near_copies_cost_no_judge_and_copies_are_records(archive: Archive, task: Task) -> None:
    class Copying(Policy):
        def text(self, prompt: Prompt) -> str:
            spaced = kernel(1.2).replace("\n\n\nclass", "\n" * (3 + len(self.prompts)) + "class")
            return expert_completion(spaced + "x = 1\n" * (len(self.prompts) > 2), "again")

    judges = Judges()
    plan = PLAN.model_copy(update={"edits": 0, "proposals": 1, "operators": ("vanilla",), "novelty": 0.9})
    result = run(archive, task, Copying([1.0]), plan, judges=judges, candidates=4)
    assert sum("speed = 1.2" in code for code in judges.judged) == 2  # once, and its confirmation
    assert result.statuses["not novel"] == 3


def test_models_that_never_answer_are_given_up(archive: Archive, task: Task) -> None:
    class Dead(Policy):
        def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
            self.prompts += prompts
            return [Completion(prompt_id=p.prompt_id, index=0, text="", finish_reason=LOST) for p in prompts]

    policy = Dead([1.0])
    result = run(archive, task, policy)
    assert result.stopped_by == "models"
    assert result.asked == 0
    assert len(policy.prompts) == 3 * 2


def test_a_spent_budget_ends_the_asking(archive: Archive, task: Task) -> None:
    spending = Spending(budget_usd=1.0)
    spending.add(
        Call(
            prompt_id="p", model="m", operator="o", prompt_tokens=0, completion_tokens=0, usd=2, seconds=0, outcome="ok"
        )
    )
    policy = Policy([1.2])
    result = run(archive, task, policy, spending=spending)
    assert result.stopped_by == "budget"
    assert policy.prompts == []


def test_no_more_is_asked_than_may_be_judged(archive: Archive, task: Task) -> None:
    policy = Policy([1.2, 1.3, 1.4])
    result = run(archive, task, policy, PLAN.model_copy(update={"proposals": 4, "edits": 3}), candidates=3)
    assert len(policy.prompts) == result.asked == 3


def test_pulls_have_the_reward_of_their_time_and_the_cost_of_their_call(archive: Archive, task: Task) -> None:
    run(archive, task, Policy([1.2, 0.0, 2.4]), PLAN.model_copy(update={"edits": 0}), candidates=3)
    spending = Spending()
    for record in (record for record in archive.records() if record.operator != CONFIRM):
        spending.add(
            Call(
                prompt_id=record.group_id or "",
                model="policy",
                operator=record.operator,
                prompt_tokens=1,
                completion_tokens=1,
                usd=0.25,
                seconds=9,
                outcome="ok",
            )
        )
    pulls = pulls_of([r for r in archive.records() if r.operator != CONFIRM], spending)
    assert [pull.cost for pull in pulls] == [0.25] * 3
    assert sorted(round(pull.reward, 3) for pull in pulls) == [0.0, 0.337, 1.0]  # 0.1 + 0.9 * log2(1.2), wrong, doubled
