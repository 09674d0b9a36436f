"""From completions to records: nothing is used before it is in the archive, and nothing is judged twice."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from actors.types import JudgeJob, JudgeResult
from archive.types import Record, software
from cluster.recording import UNPARSED, Answer, ExpertVerdict, Group, Stage
from cluster.run import Run
from judge.types import Candidate, Status, Verdict
from search.fingerprint import fingerprint
from search.parser import parse
from search.types import Completion, Parsed, Prompt
from tasks.errors import TaskError
from tasks.experts import expert_kernels
from tasks.types import Task

COPY = "copy"
"""Flag of a record whose code some earlier record of the task has already: that record's verdict is its verdict."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """One completion on its way to a record."""

    task: Task
    prompt: Prompt
    completion: Completion
    parsed: Parsed
    step: int


def with_answers(asked: Sequence[tuple[Task, Prompt]], completions: Sequence[Completion], step: int) -> list[Asked]:
    """What was answered to the prompts, in the order of the completions."""
    by_prompt = {prompt.prompt_id: (task, prompt) for task, prompt in asked}
    return [
        Asked(
            task=by_prompt[completion.prompt_id][0],
            prompt=by_prompt[completion.prompt_id][1],
            completion=completion,
            parsed=parse(completion.text),
            step=step,
        )
        for completion in completions
    ]


def judge_experts(run: Run) -> None:
    """Judge the suite's expert kernels on this machine; those in the archive already are not judged again."""
    if not run.config.tasks.expert_records:
        return
    jobs, kernels, known = [], {}, []
    for task in run.tasks:
        for kernel in expert_kernels(task.name, run.config.search.backend):
            record_id = _record_id(run, "expert", task.task_id, kernel.code)
            known.append(record_id)
            if run.archive.get(record_id) is None:
                kernels[record_id] = (task, kernel)
                jobs.append(JudgeJob(job_id=record_id, task=task, candidate=Candidate(code=kernel.code)))
    if jobs:
        run.say(f"judging {len(jobs)} expert kernels")
    for number, result in enumerate(run.session.the_evaluators.judge(jobs), start=1):
        task, kernel = kernels[result.job.job_id]
        _raise_task_error(result)
        record = Record(
            record_id=result.job.job_id,
            run_id=run.state.run_id,
            task_name=task.name,
            task_id=task.task_id,
            source="expert",
            operator="expert",
            code=kernel.code,
            analysis=kernel.analysis,
            software=software(),
            extra={"backend": kernel.backend},
            verdict=result.verdict,
        )
        run.archive.add(record)
        run.say(f"  {number}/{len(jobs)} {task.name} {kernel.quality}: {describe(result.verdict)}")
    judged = [one for record_id in known if (one := run.archive.get(record_id)) is not None]
    run.record(
        *(ExpertVerdict(run_id=run.state.run_id, record_id=one.record_id, verdict=one.verdict) for one in judged)
    )


def groups_of(run: Run, stage: Stage, asked: Sequence[Asked], records: Sequence[Record]) -> list[Group]:
    """What was asked and judged, one group a prompt, in the order in which it was asked."""
    members: dict[str, list[tuple[Asked, Record]]] = {}
    for a, record in zip(asked, records, strict=True):
        members.setdefault(a.prompt.prompt_id, []).append((a, record))
    return [
        Group(
            run_id=run.state.run_id,
            stage=stage,
            step=found[0][0].step,
            task_name=found[0][0].task.name,
            task_id=found[0][0].task.task_id,
            prompt=found[0][0].prompt,
            answers=tuple(
                Answer(completion=a.completion, record_id=record.record_id, verdict=record.verdict)
                for a, record in found
            ),
        )
        for found in members.values()
    ]


def judge_step(run: Run, asked: Sequence[Asked]) -> list[Record]:
    """A record for each completion, in the same order; each is in the archive before this returns."""
    known = _known_verdicts(run, {a.task.task_id for a in asked}, max((a.step for a in asked), default=0))
    records: dict[str, Record] = {}
    waiting: dict[str, Asked] = {}
    twins: list[Asked] = []
    for a in asked:
        record_id = _asked_id(run, a)
        earlier = run.archive.get(record_id)
        if earlier is not None:  # judged before a kill in the middle of this step
            records[record_id] = earlier
        elif a.parsed.candidate is None:
            verdict = Verdict(status=Status.COMPILE_ERROR, flags=(UNPARSED,), message=a.parsed.reason)
            records[record_id] = _keep(run, a, verdict)
        elif (key := (a.task.task_id, fingerprint(a.parsed.candidate.code))) in known:
            twins.append(a)
        else:
            known[key] = None
            waiting[record_id] = a
    jobs = [
        JudgeJob(job_id=record_id, task=a.task, candidate=a.parsed.candidate)
        for record_id, a in waiting.items()
        if a.parsed.candidate is not None
    ]
    done = len(asked) - len(jobs) - len(twins)
    for result in run.session.the_evaluators.judge(jobs):
        a = waiting[result.job.job_id]
        _raise_task_error(result)
        record = _keep(run, a, result.verdict)
        records[record.record_id] = record
        known[(a.task.task_id, fingerprint(record.code))] = record.verdict
        done += 1
        run.say(f"  {done}/{len(asked)} {a.task.name} #{a.completion.index}: {describe(result.verdict)}")
    for a in twins:
        assert a.parsed.candidate is not None
        original = known[(a.task.task_id, fingerprint(a.parsed.candidate.code))]
        assert original is not None, "every candidate of this step has been judged above"
        copied = original.model_copy(update={"flags": tuple(dict.fromkeys((*original.flags, COPY)))})
        records[_asked_id(run, a)] = _keep(run, a, copied)
    return [records[_asked_id(run, a)] for a in asked]


def _raise_task_error(result: JudgeResult) -> None:
    """A task whose own code fails can teach nothing: the run stops with the task's line."""
    if result.task_error:
        raise TaskError(result.task_error)


def _known_verdicts(run: Run, task_ids: set[str], step: int) -> dict[tuple[str, str], Verdict | None]:
    """Verdicts by (task_id, fingerprint): the same code is judged once, and its first writer has the credit.

    Records of later steps are there when a run went back to an older checkpoint: they were not known at this step.
    """
    known: dict[tuple[str, str], Verdict | None] = {}
    for task_id in task_ids:
        for record in run.archive.records(task_id=task_id):
            if record.code and record.verdict.status is not Status.JUDGE_ERROR and (record.step or 0) <= step:
                known.setdefault((task_id, fingerprint(record.code)), record.verdict)
    return known


def describe(verdict: Verdict) -> str:
    """A verdict in one line for the terminal."""
    if verdict.is_correct and verdict.speedup is not None:
        return f"{verdict.status} {verdict.speedup:.2f}x [{verdict.speedup_low:.2f}, {verdict.speedup_high:.2f}]"
    return f"{verdict.status} ({verdict.message[:100]})" if verdict.message else str(verdict.status)


def _keep(run: Run, a: Asked, verdict: Verdict) -> Record:
    record = Record(
        record_id=_asked_id(run, a),
        run_id=run.state.run_id,
        task_name=a.task.name,
        task_id=a.task.task_id,
        source=a.completion.model,
        operator=a.prompt.operator,
        code=a.parsed.candidate.code if a.parsed.candidate else "",
        analysis=a.parsed.analysis,
        completion=a.completion.text,
        parents=a.prompt.exemplar_ids,
        group_id=a.prompt.prompt_id,
        step=a.step,
        policy_version=a.completion.policy_version,
        prompt="\n\n".join(message["content"] for message in a.prompt.messages),
        prompt_tokens=len(a.completion.prompt_token_ids) or None,
        completion_tokens=len(a.completion.token_ids) or None,
        software=software(),
        extra={"backend": run.config.search.backend},
        verdict=verdict,
    )
    run.archive.add(record)
    return record


def _asked_id(run: Run, a: Asked) -> str:
    return _record_id(run, a.prompt.prompt_id, str(a.completion.index), a.completion.text)


def _record_id(run: Run, *parts: str) -> str:
    """The same work has the same id, so that a resumed step finds what was judged already."""
    return hashlib.sha256("\0".join((run.state.run_id, *parts)).encode(errors="replace")).hexdigest()[:32]


def status_name(record: Record) -> str:
    return UNPARSED if UNPARSED in record.verdict.flags else str(record.verdict.status)
