"""`warpsmith evaluate`: samples completions for tasks, judges each distinct one, and says how many were right.

What was judged is in OUT/answers.jsonl as it comes; OUT/summary.json is written at the end, after Ctrl-C too.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.config import Config
from cluster.errors import ConfigError
from cluster.evaluation import Judged, family_of, summarise
from cluster.interrupts import sigterm_as_interrupt
from cluster.run import refuse_doubled
from judge.types import Status, Verdict
from tasks.types import Task

if TYPE_CHECKING:
    from actors.types import JudgeJob
    from cluster.session import Session
    from search.types import Completion, Parsed, Prompt

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What the command line asks for."""

    sources: Mapping[str, Sequence[Task]]
    """The tasks, by what named them on the command line."""
    samples: int
    """Completions of each task."""
    timed: bool
    """Whether correct candidates are timed too; without it the judge only verifies."""
    out: Path

    @property
    def tasks(self) -> list[Task]:
        return [task for tasks in self.sources.values() for task in tasks]


def evaluate(config: Config, plan: Plan, say: Say = print) -> dict[str, Any]:
    """The summary (cluster.evaluation.summarise), with what it was measured with.

    Raises WarpsmithError (one line) for what the user can mend; KeyboardInterrupt after Ctrl-C, with the summary of
    what had been judged on disk.
    """
    from cluster.session import open_session
    from learner.pretrained import prepare_model

    refuse_doubled(plan.tasks, "--tasks")
    config = _of_evaluation(config, plan)
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        file = (plan.out / "answers.jsonl").open("w", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"--out {plan.out}: cannot be written: {error.strerror}") from None
    began, answers = time.monotonic(), list[Judged]()
    seconds: dict[str, float] = {}
    with sigterm_as_interrupt(), file:
        try:
            model_dir = prepare_model(config.model.path)
            warn: Say = lambda line: say(f"warning: {line}")  # noqa: E731
            with open_session(config, model_dir, plan.out, warn, learns=False) as session:
                seconds["start"] = time.monotonic() - began
                say(f"ready after {seconds['start']:.0f} s")
                for one, line in _judged(config, plan, session, say, seconds):
                    answers.append(one)
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")
                    file.flush()
        finally:
            summary = _with_origin(summarise(answers), config, plan, seconds)
            (plan.out / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    return summary


def _of_evaluation(config: Config, plan: Plan) -> Config:
    judge = config.judge.model_copy(update={"timed": plan.timed})
    rollout = config.rollout.model_copy(update={"group_size": plan.samples})
    # No exemplars: what the policy knows by itself.
    search = config.search.model_copy(update={"operator": "vanilla"})
    return config.model_copy(update={"judge": judge, "rollout": rollout, "search": search})


def _judged(
    config: Config, plan: Plan, session: Session, say: Say, seconds: dict[str, float]
) -> Iterator[tuple[Judged, dict[str, Any]]]:
    """Every completion with its verdict; the same code for the same task is judged once."""
    from actors.types import JudgeJob
    from search.fingerprint import fingerprint
    from search.parser import parse

    prompts = _prompts(config, plan, session)
    asked = time.monotonic()
    completions = session.the_rollout.generate([prompt for _, prompt in prompts])
    seconds["rollout"] = time.monotonic() - asked
    tokens = sum(len(completion.token_ids) for completion in completions)
    say(f"{len(completions)} completions, {tokens} tokens, {tokens / max(seconds['rollout'], 1e-9):.0f} tokens/s")
    source_of = {task.name: source for source, tasks in plan.sources.items() for task in tasks}
    by_prompt = {prompt.prompt_id: task for task, prompt in prompts}
    waiting: dict[str, list[tuple[Task, Completion, Parsed]]] = {}
    jobs: list[JudgeJob] = []
    for completion in completions:
        task, parsed = by_prompt[completion.prompt_id], parse(completion.text)
        if parsed.candidate is None:
            verdict = Verdict(status=Status.COMPILE_ERROR, message=parsed.reason)
            yield _line(source_of[task.name], task, completion, parsed, verdict)
            continue
        job_id = f"{task.name}-{fingerprint(parsed.candidate.code)}"
        if job_id not in waiting:
            jobs.append(JudgeJob(job_id=job_id, task=task, candidate=parsed.candidate))
        waiting.setdefault(job_id, []).append((task, completion, parsed))
    asked = time.monotonic()
    say(f"judging {len(jobs)} distinct candidates")
    for number, result in enumerate(session.the_evaluators.judge(jobs), start=1):
        if result.task_error:
            say(f"warning: {result.task_error}")
        for task, completion, parsed in waiting[str(result.job.job_id)]:
            yield _line(source_of[task.name], task, completion, parsed, result.verdict)
        if number % max(len(jobs) // 20, 1) == 0 or number == len(jobs):
            say(f"  {number}/{len(jobs)}, {number / max(time.monotonic() - asked, 1e-9):.1f} candidates/s")
    seconds["judge"] = time.monotonic() - asked


def _prompts(config: Config, plan: Plan, session: Session) -> list[tuple[Task, Prompt]]:
    import numpy as np

    from search.operators import build_prompt

    rng = np.random.default_rng(config.run.seed)  # a vanilla prompt draws nothing
    count = session.count_tokens
    return [
        (task, build_prompt(task, [], config.search, rng, prompt_id=f"evaluate-{task.name}", count_tokens=count))
        for task in plan.tasks
    ]


def _line(
    source: str, task: Task, completion: Completion, parsed: Parsed, verdict: Verdict
) -> tuple[Judged, dict[str, Any]]:
    one = Judged(
        source=source,
        task=task.name,
        family=family_of(task),
        index=completion.index,
        verdict=verdict,
        parsed=parsed.candidate is not None,
        tokens=len(completion.token_ids),
        truncated=completion.finish_reason == "length",
    )
    return one, {
        "source": source,
        "task": task.name,
        "task_id": task.task_id,
        "index": completion.index,
        "status": str(verdict.status) if parsed.candidate else "unparsed",
        "speedup": verdict.speedup,
        "message": verdict.message,
        "seconds": verdict.phase_seconds,
        "tokens": len(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "text": completion.text,
    }


def _with_origin(summary: dict[str, Any], config: Config, plan: Plan, seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "model": config.model.path,
        "backend": config.search.backend,
        "temperature": config.rollout.temperature,
        "samples": plan.samples,
        "timed": plan.timed,
        "asked_tasks": len(plan.tasks),
        "seconds": seconds,
        **summary,
    }
