"""The search for a faster kernel: ask, judge, show the best, ask again. One loop for the command line and the service.

    bench = Workbench(rollout=..., evaluators=..., archive=..., search=config.search)
    result = optimize_task(task, bench, max_candidates=32, on_record=lambda record, done: print(record.verdict.status))
    if result.best is not None: ...

Every record is in the archive before ``on_record`` hears of it, and before it is an exemplar of the next prompts. A
win is judged once more on new process pairs before it is reported: the best of many measurements is too good by the
luck of the draw, its confirmation is not. What is reported are the confirmation's numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Protocol

import numpy as np

from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from archive.types import Record, new_id
from judge.types import Candidate, Status, Verdict
from search.edits import parse_edit
from search.fingerprint import fingerprint
from search.operators import build_prompt
from search.parser import parse
from search.settings import SearchSettings
from search.types import Completion, Parsed, Prompt
from tasks.errors import TaskError
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks
from tasks.types import Task

CONFIRM, UNPARSED, COPY = "confirm", "unparsed", "copy"
"""Operator of a confirmation; flags of a completion without a candidate, and of code that was judged before."""
MAX_CONFIRMATIONS = 5
"""So many wins may fail to be confirmed before the search gives up on having one."""


class Rollout(Protocol):
    """What is needed of actors.pools.RolloutPool."""

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]: ...

    def count_tokens(self, messages: Sequence[dict[str, str]]) -> int: ...


class Evaluators(Protocol):
    """What is needed of actors.pools.EvaluatorPool."""

    def judge(self, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]: ...


@dataclass(frozen=True, kw_only=True)
class Workbench:
    """What a search works with; used by one search at a time."""

    rollout: Rollout
    evaluators: Evaluators
    archive: Archive
    search: SearchSettings
    prompts_per_round: int = 1
    """One for each engine, so that none is idle."""
    seed: int = 0


OnRecord = Callable[[Record, int], None]
"""Is given each new record and how many completions were asked for so far."""


@dataclass(frozen=True, kw_only=True)
class OptimizeResult:
    """What a search found."""

    task: Task
    best: Record | None
    """The confirmed win with the highest lower bound; its verdict is that of the confirmation."""
    best_correct: Record | None
    """Where there is no win: the fastest correct record, which nothing shows to be faster than the baseline."""
    asked: int
    """Completions taken from the policy."""
    judged: int
    """Candidates that a judge was given, experts and confirmations included."""
    statuses: dict[str, int]
    """Of this search's own records, by status; "unparsed" for completions without a candidate."""
    seconds: float
    stopped_by: str
    """"candidates", "budget" or "caller"; of evolution also "models" (none answers) or "exhausted" (nothing left)."""


@dataclass(kw_only=True)
class _Search:
    task: Task
    bench: Workbench
    on_record: OnRecord
    out_of_time: Callable[[], bool]
    run_id: str
    asked: int = 0
    judged: int = 0
    statuses: dict[str, int] = field(default_factory=dict)


def optimize_task(
    task: Task,
    bench: Workbench,
    *,
    max_candidates: int,
    budget_seconds: float | None = None,
    on_record: OnRecord | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> OptimizeResult:
    """Ask for at most `max_candidates` completions and judge them; the archive's earlier records of the task count too.

    The budget is looked at between rounds and between verdicts; a round of rollout that has begun is finished.

    Raises TaskError when the task's own code fails, ActorError when a pool has nobody left.
    """
    began = time.monotonic()
    stopped = ""

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
        run_id=f"optimize-{new_id()[:12]}",
    )
    if bench.archive.count(task_id=task.task_id) == 0:
        _check_reference(search)
    _judge_experts(search)
    round_number = 0
    while search.asked < max_candidates and not out_of_time():
        round_number += 1
        prompts = _prompts(search, round_number)
        completions = bench.rollout.generate(prompts)[: max_candidates - search.asked]
        search.asked += len(completions)
        _judge_completions(search, {prompt.prompt_id: prompt for prompt in prompts}, completions)
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
        stopped_by=stopped or "candidates",
    )


def _check_reference(search: _Search) -> None:
    """The task's own code as a candidate must be correct: found out before the policy is asked for anything."""
    code = f"{search.task.source}\n\nModelNew = Model\n"
    for last in (False, True):  # once more before the task is blamed: on a busy machine a verdict may be the load's
        job = JudgeJob(job_id=f"{search.run_id}-reference-{last}", task=search.task, candidate=Candidate(code=code))
        (result,) = _judge(search, [job])
        verdict = result.verdict
        if verdict.is_correct or verdict.status is Status.JUDGE_ERROR:
            return
        if last:
            raise TaskError(
                f"{search.task.where}: the reference does not pass as a candidate of its own: "
                f"{verdict.status} ({verdict.message}); mend the task"
            )


def _judge_experts(search: _Search) -> None:
    """Where the task is one of the suite's: its expert kernels are the first exemplars."""
    task, archive = search.task, search.bench.archive
    if task.task_id not in {known.task_id for known in suite_tasks()}:
        return
    known = _known(search)
    kernels = {
        new_id(): kernel
        for kernel in expert_kernels(task.name, search.bench.search.backend)
        if fingerprint(kernel.code) not in known
    }
    jobs = [JudgeJob(job_id=i, task=task, candidate=Candidate(code=kernel.code)) for i, kernel in kernels.items()]
    for result in _judge(search, jobs):
        kernel = kernels[result.job.job_id]
        record = Record(
            record_id=result.job.job_id,
            run_id=search.run_id,
            task_name=task.name,
            task_id=task.task_id,
            source="expert",
            operator="expert",
            code=kernel.code,
            analysis=kernel.analysis,
            extra={"backend": kernel.backend},
            verdict=result.verdict,
        )
        archive.add(record)
        _tell(search, record)


def _prompts(search: _Search, round_number: int) -> list[Prompt]:
    bench = search.bench
    records = [r for r in bench.archive.records(task_id=search.task.task_id) if r.operator != CONFIRM]
    # The archive's size is part of the seed: a second search of the same task draws other exemplars.
    rng = np.random.default_rng([bench.seed, round_number, len(records)])
    return [
        build_prompt(
            search.task,
            records,
            bench.search,
            rng,
            prompt_id=f"{search.run_id}-{round_number}-{number}",
            count_tokens=lambda text: bench.rollout.count_tokens([{"role": "user", "content": text}]),
        )
        for number in range(bench.prompts_per_round)
    ]


def _judge_completions(search: _Search, prompts: dict[str, Prompt], completions: Sequence[Completion]) -> None:
    """A record for each completion; the same code is judged once, ever."""
    known = _known(search)
    waiting: dict[str, list[tuple[Completion, Parsed]]] = {}
    for completion in completions:
        prompt = prompts[completion.prompt_id]
        parsed = parse_edit(completion.text, prompt.edits) if prompt.edits else parse(completion.text)
        if parsed.candidate is None:
            unparsed = Verdict(status=Status.COMPILE_ERROR, flags=(UNPARSED,), message=parsed.reason)
            _keep(search, prompt, completion, parsed, unparsed)
            continue
        key = fingerprint(parsed.candidate.code)
        if key in known:
            _keep(search, prompt, completion, parsed, _copied(known[key]))
        else:
            waiting.setdefault(key, []).append((completion, parsed))
    jobs = [
        JudgeJob(job_id=f"{search.run_id}-{key}", task=search.task, candidate=group[0][1].candidate, payload=key)
        for key, group in waiting.items()
        if group[0][1].candidate is not None
    ]
    for result in _judge(search, jobs):
        for number, (completion, parsed) in enumerate(waiting[result.job.payload]):
            verdict = _copied(result.verdict) if number else result.verdict
            _keep(search, prompts[completion.prompt_id], completion, parsed, verdict)
        if search.out_of_time():
            return


def _judge(search: _Search, jobs: Sequence[JudgeJob]) -> Iterator[JudgeResult]:
    for result in search.bench.evaluators.judge(jobs):
        if result.task_error:
            raise TaskError(result.task_error)
        search.judged += 1
        yield result


def _confirmed_best(search: _Search) -> Record | None:
    """The win with the highest lower bound that is a win a second time too, as the record of its confirmation."""
    records = search.bench.archive.records(task_id=search.task.task_id)
    wins = [
        r for r in records if r.verdict.status is Status.WIN and r.operator != CONFIRM and COPY not in r.verdict.flags
    ]
    confirmations = {record.parents[0]: record for record in records if record.operator == CONFIRM}
    wins.sort(key=lambda record: record.verdict.speedup_low or 0.0, reverse=True)
    for win in wins[:MAX_CONFIRMATIONS]:
        again = confirmations.get(win.record_id) or _confirm(search, win)
        if again.verdict.status is Status.WIN:
            return again
    return None


def _confirm(search: _Search, win: Record) -> Record:
    job = JudgeJob(job_id=new_id(), task=search.task, candidate=Candidate(code=win.code))
    (result,) = _judge(search, [job])
    again = win.model_copy(
        update={
            "record_id": job.job_id,
            "run_id": search.run_id,
            "operator": CONFIRM,
            "parents": (win.record_id,),
            "verdict": result.verdict,
            "created_at": datetime.now(UTC),
        }
    )
    search.bench.archive.add(again)
    _tell(search, again)
    return again


def _known(search: _Search) -> dict[str, Verdict]:
    """Verdicts on the task's code so far by fingerprint; the judge's own failures do not count."""
    records = search.bench.archive.records(task_id=search.task.task_id)
    return {
        fingerprint(record.code): record.verdict
        for record in reversed(records)  # the first verdict stays: it is the writer's own
        if record.code and record.verdict.status is not Status.JUDGE_ERROR
    }


def _copied(verdict: Verdict) -> Verdict:
    return verdict.model_copy(update={"flags": tuple(dict.fromkeys((*verdict.flags, COPY)))})


def _keep(search: _Search, prompt: Prompt, completion: Completion, parsed: Parsed, verdict: Verdict) -> None:
    record = Record(
        run_id=search.run_id,
        task_name=search.task.name,
        task_id=search.task.task_id,
        source=completion.model,
        operator=prompt.operator,
        code=parsed.candidate.code if parsed.candidate else "",
        analysis=parsed.analysis,
        completion=completion.text,
        parents=prompt.exemplar_ids,
        group_id=prompt.prompt_id,
        policy_version=completion.policy_version,
        verdict=verdict,
    )
    search.bench.archive.add(record)
    _tell(search, record)


def _tell(search: _Search, record: Record) -> None:
    name = UNPARSED if UNPARSED in record.verdict.flags else str(record.verdict.status)
    search.statuses[name] = search.statuses.get(name, 0) + 1
    search.on_record(record, search.asked)
