"""Evolution: stages and batches on one task. Everything it decides is a function of the archive's records.

    result = evolve_task(task, bench, plan, models, max_candidates=64)

Stages, each left out where it has nothing to do: the reference judged against itself; expert kernels; kernels of
similar tasks as they stand (`transplant`); kernels made from its traced operations (`template`); then rounds of
proposals (operator and model drawn by the bandit), their follow-ups (an edit of what is correct, a repair of what is
not), other schedules of the templates, and a sweep of the best kernel's numbers; last the confirmation of the best. A
search that is interrupted and called again with the same run_id first judges what was answered and not judged, and
goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from actors.endpoint import LOST, UNPAID
from actors.models import Models
from actors.spending import Spending
from actors.types import JudgeJob
from archive.types import Record, new_id
from judge.types import Candidate
from search.bandit import Arm, Pull, choose_arm
from search.bandit import pulls_of as pulls_in_order
from search.fingerprint import fingerprint
from search.novelty import is_novel
from search.parser import parse
from search.populations import archipelago
from search.proposals import Neighbour, View, propose, similar
from search.settings import EvolutionSettings, SearchSettings
from search.sweep import sweep
from search.templates import Templates
from search.types import Completion, Prompt
from serving.answers import AnswerLog
from serving.optimizer import (
    CONFIRM,
    OnRecord,
    OptimizeResult,
    Workbench,
    _check_reference,
    _confirmed_best,
    _judge,
    _judge_completions,
    _judge_experts,
    _known,
    _Search,
    _tell,
)
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks
from tasks.types import Task

SWEEP, TRANSPLANT, TEMPLATE = "sweep", "transplant", "template"
"""Operators without a model; they are their records' source too."""
BARREN_ROUNDS = 3
"""Rounds in a row without one answer after which the models are given up."""
_FOLLOW_UPS = ("edit", "repair")


@dataclass(kw_only=True)
class _Evolution:
    search: _Search
    plan: EvolutionSettings
    models: Models
    spending: Spending
    answers: AnswerLog | None
    max_candidates: int
    templates: Templates | None = None
    neighbours: list[Neighbour] = field(default_factory=list)
    round_number: int = 0
    barren: int = 0

    @property
    def task(self) -> Task:
        return self.search.task

    @property
    def room(self) -> int:
        """Candidates that may still be asked for."""
        return self.max_candidates - self.search.asked

    def records(self) -> list[Record]:
        """The task's, without confirmations, in order of arrival."""
        found = self.search.bench.archive.records(task_id=self.task.task_id)
        return [record for record in found if record.operator != CONFIRM]


def evolve_task(
    task: Task,
    bench: Workbench,
    plan: EvolutionSettings,
    models: Models,
    *,
    max_candidates: int,
    budget_seconds: float | None = None,
    spending: Spending | None = None,
    answers: AnswerLog | None = None,
    templates: Templates | None = None,
    run_id: str | None = None,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> OptimizeResult:
    """Look for a faster kernel; at most `max_candidates` completions and swept candidates, those of the run so far too.

    Args:
        bench: its rollout is not used; `models` are asked.
        spending: counts what calls cost and says when the budget is spent.
        answers: keeps answers until they are judged.
        templates: what can be made of the task without a model.
        run_id: of an earlier call that is to be resumed; a new one when left out.

    Raises TaskError when the task's own code fails, ModelError and ActorError when a model or a pool cannot be used.
    """
    began, stopped = time.monotonic(), ""
    spending = spending or Spending()

    def out_of_time() -> bool:
        nonlocal stopped
        if should_stop is not None and should_stop():
            stopped = "caller"
        elif budget_seconds is not None and time.monotonic() - began >= budget_seconds:
            stopped = "budget"
        return bool(stopped)

    search = _Search(
        task=task,
        bench=bench,
        on_record=on_record or (lambda record, asked: None),
        out_of_time=out_of_time,
        run_id=run_id or f"optimize-{new_id()[:12]}",
    )
    evolution = _Evolution(
        search=search,
        plan=plan,
        models=models,
        spending=spending,
        answers=answers,
        max_candidates=max_candidates,
        templates=templates,
    )
    _resume(evolution)
    if bench.archive.count(task_id=task.task_id) == 0:
        _check_reference(search)
    _judge_experts(search)
    evolution.neighbours = neighbours_of(task, bench)
    most = evolution.room // 2 if models.names else evolution.room
    _template(evolution, min(plan.templates, most))
    if not any(record.verdict.is_correct for record in evolution.records()):
        _transplant(evolution)
    while not out_of_time() and not stopped:
        stopped = _round(evolution)
    best = None if stopped == "caller" else _confirmed_best(search)
    correct = [record for record in bench.archive.records(task_id=task.task_id) if record.verdict.is_correct]
    return OptimizeResult(
        task=task,
        best=best,
        best_correct=None if best or not correct else max(correct, key=lambda record: record.score),
        asked=search.asked,
        judged=search.judged,
        statuses=search.statuses,
        seconds=time.monotonic() - began,
        stopped_by=stopped,
    )


def _round(evolution: _Evolution) -> str:
    """One batch; returns why the search ends, "" while it goes on."""
    evolution.round_number += 1
    if evolution.room <= 0 or (evolution.plan.batches and evolution.round_number > evolution.plan.batches):
        return "candidates"
    before = len(evolution.records())
    if evolution.models.names and not evolution.spending.exhausted:
        asked = _ask(evolution, _proposals(evolution))
        for _ in range(evolution.plan.edits):
            if not asked or evolution.room <= 0 or evolution.search.out_of_time():
                break
            asked = _ask(evolution, _follow_ups(evolution, asked))
    if not evolution.search.out_of_time():
        _sweep(evolution)
    if len(evolution.records()) > before:
        return ""
    if evolution.models.names and evolution.spending.exhausted:
        return "budget"
    if not evolution.models.names:
        return "exhausted"
    return "models" if evolution.barren >= BARREN_ROUNDS else ""


def _ask(evolution: _Evolution, prompts: Sequence[Prompt]) -> list[str]:
    """Ask, keep, judge; returns the prompt_ids that were answered."""
    prompts = prompts[: evolution.room]  # each is paid for and gives at least one answer
    by_id = {prompt.prompt_id: prompt for prompt in prompts}
    completions: list[Completion] = []
    for completion in evolution.models.stream(prompts):
        if completion.finish_reason in (LOST, UNPAID):
            continue
        if len(completions) == evolution.room:  # a group of the policy may be larger than what is left
            continue
        if evolution.answers is not None:
            evolution.answers.add(by_id[completion.prompt_id], completion)
        completions.append(completion)
    evolution.search.asked += len(completions)
    evolution.barren = 0 if completions else evolution.barren + 1
    _judge_answers(evolution, by_id, completions)
    return list(dict.fromkeys(completion.prompt_id for completion in completions))


def _judge_answers(evolution: _Evolution, prompts: dict[str, Prompt], completions: Sequence[Completion]) -> None:
    """All but new kernels that are nearly one that was judged."""
    known = [record.code for record in evolution.records() if record.code]
    novel = []
    for completion in completions:
        prompt = prompts[completion.prompt_id]
        candidate = parse(completion.text).candidate if prompt.operator not in _FOLLOW_UPS else None
        # An exact copy is a record of its own, at no cost; it is the near copies that would cost a judge.
        if candidate is not None and candidate.code not in known:
            if evolution.plan.novelty < 1 and not is_novel(candidate.code, known, evolution.plan.novelty):
                statuses = evolution.search.statuses
                statuses["not novel"] = statuses.get("not novel", 0) + 1
                continue
            known.append(candidate.code)
        novel.append(completion)
    _judge_completions(evolution.search, prompts, novel)


def _proposals(evolution: _Evolution) -> list[Prompt]:
    """Prompts of this round: island by island, each by the operator and model that the bandit draws."""
    records, plan = evolution.records(), evolution.plan
    islands = archipelago(
        records, count=plan.islands, migration_interval=plan.migration_interval, migrants=plan.migrants
    )
    pulls = pulls_of(records, evolution.spending)
    prompts: list[Prompt] = []
    mended: set[str] = set()
    for number in range(plan.proposals):
        seed = [evolution.search.bench.seed, evolution.round_number, number, len(records)]
        rng = np.random.default_rng(seed)
        view = View(
            records=[record for record in records if record.record_id not in mended],
            pool=islands[(evolution.round_number + number) % plan.islands].pool,
            neighbours=evolution.neighbours,
        )
        prompt = _draw_prompt(
            evolution, view, pulls, rng, f"{evolution.search.run_id}-{evolution.round_number}-{number}"
        )
        if prompt is None:
            continue
        if prompt.operator == "repair":  # two proposals of a round do not mend the same failure
            mended.update(prompt.exemplar_ids)
        prompts.append(prompt)
    return prompts


def _draw_prompt(
    evolution: _Evolution, view: View, pulls: Sequence[Pull], rng: np.random.Generator, prompt_id: str
) -> Prompt | None:
    """The prompt of the first arm, in the bandit's order, that has something to ask."""
    operators: list[str] = list(evolution.plan.operators)
    if evolution.plan.functional and evolution.round_number == 1:
        operators = ["functional"]
    arms = [Arm(operator, model) for operator in operators for model in evolution.models.names]
    while arms:
        arm = choose_arm(arms, pulls, rng)
        prompt = _prompt(evolution, arm.operator, arm.model, view, rng, prompt_id)
        if prompt is not None:
            return prompt
        arms.remove(arm)
    models = evolution.models.names
    return _prompt(evolution, "vanilla", models[int(rng.integers(len(models)))], view, rng, prompt_id)


def _follow_ups(evolution: _Evolution, asked: Iterable[str]) -> list[Prompt]:
    """For each answered prompt: its best correct record is edited, or else its last failure repaired, by its model."""
    records = evolution.records()
    prompts: list[Prompt] = []
    for prompt_id in list(asked)[: evolution.room]:
        mine = [record for record in records if record.group_id == prompt_id]
        correct = [record for record in mine if record.verdict.is_correct]
        model = next((record.source for record in mine if record.source in evolution.models.names), None)
        if model is None:
            continue
        view = View(records=correct or mine, neighbours=evolution.neighbours)
        operator = "edit" if correct else "repair"
        rng = np.random.default_rng([evolution.search.bench.seed, evolution.round_number, len(prompts), len(records)])
        if not correct:  # the depth of a line of repairs is read off all of the task's records
            ids = {record.record_id for record in mine}
            failures = [record for record in records if record.record_id in ids or not _is_open(record, ids)]
            view = View(records=failures)
        prompt = _prompt(evolution, operator, model, view, rng, f"{prompt_id}e")
        if prompt is not None:
            prompts.append(prompt)
    return prompts


def _is_open(record: Record, ids: set[str]) -> bool:
    """Whether a repair would look at it rather than at those that are wanted."""
    return bool(record.code) and not record.verdict.is_correct and record.record_id not in ids


def _prompt(
    evolution: _Evolution, operator: str, model: str, view: View, rng: np.random.Generator, prompt_id: str
) -> Prompt | None:
    settings: SearchSettings = evolution.search.bench.search
    count = None
    if evolution.models.is_local(model):
        count = _counter(evolution.models)
    else:
        settings = settings.model_copy(update={"max_prompt_tokens": evolution.plan.prompt_tokens})
    return propose(operator, evolution.task, view, settings, rng, prompt_id=prompt_id, model=model, count_tokens=count)


def _counter(models: Models) -> Callable[[str], int]:
    return lambda text: models.count_tokens([{"role": "user", "content": text}])


def pulls_of(records: Sequence[Record], spending: Spending) -> list[Pull]:
    """What each completion earned and cost: records in their order, calls by prompt_id.

    The unit is USD where any call cost some, else seconds.
    """
    paid = any(call.usd > 0 for call in spending.calls)
    costs: dict[str, float] = {}
    for call in spending.calls:
        costs[call.prompt_id] = costs.get(call.prompt_id, 0.0) + (call.usd if paid else call.seconds)
    return pulls_in_order(records, costs)


def _sweep(evolution: _Evolution) -> None:
    """New settings of the fastest kernel's numbers."""
    count = min(evolution.plan.sweep_trials, evolution.room)
    if count <= 0:
        return
    if evolution.plan.templates:
        count -= _template(evolution, (count + 1) // 2)
    seed = evolution.search.bench.seed + 1000 * evolution.round_number
    base, codes = sweep(evolution.records(), count=count, seed=seed)
    if base is not None:
        _judge_codes(evolution, SWEEP, [(code, (base.record_id,), base.analysis) for code in codes])


def _template(evolution: _Evolution, count: int) -> int:
    """Kernels from the task's traced operations under schedules that were not tried; returns how many were judged."""
    if evolution.templates is None or count <= 0 or evolution.search.out_of_time():
        return 0
    templates, before = evolution.templates, evolution.search.asked
    seed = evolution.search.bench.seed + 1000 * evolution.round_number
    schedules = templates.next_schedules(evolution.records(), count=count, seed=seed)
    made = [(templates.render(schedule), (), templates.analysis(schedule)) for schedule in schedules]
    _judge_codes(evolution, TEMPLATE, made)
    return evolution.search.asked - before


def _transplant(evolution: _Evolution) -> None:
    """Kernels of the most similar tasks: an operation under another name needs no model at all."""
    near = similar(evolution.task, evolution.neighbours)[: min(evolution.plan.transplants, evolution.room)]
    made = [(one.record.code, (one.record.record_id,), one.record.analysis) for one in near]
    _judge_codes(evolution, TRANSPLANT, made)


def _judge_codes(evolution: _Evolution, operator: str, made: Sequence[tuple[str, tuple[str, ...], str]]) -> None:
    """Judge candidates that no model wrote: (code, parents, analysis). Code that was judged before is passed over."""
    search = evolution.search
    known = _known(search)
    fresh = {fingerprint(code): (code, parents, analysis) for code, parents, analysis in made}
    jobs = [
        JudgeJob(job_id=f"{new_id()}", task=search.task, candidate=Candidate(code=code), payload=(parents, analysis))
        for key, (code, parents, analysis) in fresh.items()
        if key not in known
    ]
    search.asked += len(jobs)
    for result in _judge(search, jobs):
        parents, analysis = result.job.payload
        record = Record(
            record_id=result.job.job_id,
            run_id=search.run_id,
            task_name=search.task.name,
            task_id=search.task.task_id,
            source=operator,
            operator=operator,
            code=result.job.candidate.code,
            analysis=analysis,
            parents=parents,
            verdict=result.verdict,
        )
        search.bench.archive.add(record)
        _tell(search, record)
        if search.out_of_time():
            return


def neighbours_of(task: Task, bench: Workbench) -> list[Neighbour]:
    """The best kernels of the suite's other tasks: those of the archive, else the experts' as they stand."""
    from judge.types import Status, Verdict

    found = []
    for other in suite_tasks():
        if other.task_id == task.task_id:
            continue
        best = bench.archive.best(other.task_id)
        if best is None:
            kernel = next(iter(expert_kernels(other.name, bench.search.backend)), None)
            if kernel is None:
                continue
            best = Record(
                record_id=f"expert-{other.name}",
                run_id="suite",
                task_name=other.name,
                task_id=other.task_id,
                source="expert",
                operator="expert",
                code=kernel.code,
                analysis=kernel.analysis,
                verdict=Verdict(status=Status.CORRECT, speedup=1.0, message="not judged on this machine"),
            )
        found.append(Neighbour(task=other, record=best))
    return found


def _resume(evolution: _Evolution) -> None:
    """Count what the run has done, and judge what it was answered and did not judge."""
    search = evolution.search
    mine = search.bench.archive.records(task_id=search.task.task_id, run_id=search.run_id)
    search.asked = sum(record.operator != CONFIRM and record.source != "expert" for record in mine)
    judged = {(record.group_id, record.completion) for record in mine}
    logged = evolution.answers.read() if evolution.answers is not None else []
    logged = [(prompt, completion) for prompt, completion in logged if prompt.prompt_id.startswith(search.run_id)]
    rounds = [prompt.prompt_id.removeprefix(f"{search.run_id}-").split("-")[0] for prompt, _ in logged]
    evolution.round_number = max((int(number) for number in rounds if number.isdigit()), default=0)
    left = [(prompt, completion) for prompt, completion in logged if (prompt.prompt_id, completion.text) not in judged]
    if left:
        search.asked += len(left)
        _judge_answers(evolution, {prompt.prompt_id: prompt for prompt, _ in left}, [c for _, c in left])
