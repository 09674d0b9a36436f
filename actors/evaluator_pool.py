"""Judges side by side: candidates in, verdicts out as they come."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from actors.elastic import Bounds
from actors.evaluator import EvaluatorActor
from actors.ledger import Outcome, Work
from actors.member import Member
from actors.pool import Pool
from actors.seats import Role
from actors.settings import EvaluatorSettings, Timeouts
from actors.types import Failure, JudgeJob, JudgeResult
from judge.errors import SandboxError
from judge.settings import JudgeSettings
from judge.types import Status, Verdict
from tasks.errors import TaskError

LOOK_AHEAD = 16
"""Jobs drawn for each judge of a GPU."""


@dataclass(kw_only=True)
class _Open:
    """A job that has no final verdict yet."""

    job: JudgeJob
    attempts: int = 0
    warnings: tuple[str, ...] = ()
    tried: frozenset[int] = frozenset()


class EvaluatorPool:
    """A pool of evaluator actors.

    with EvaluatorPool(judge, settings, timeouts) as pool:
        for result in pool.judge(jobs):
            ...

    A judge_error, or a judge that died or passed ``timeouts.judge``, is tried again ``settings.max_retries`` times,
    by another actor where there is one. A TaskError is not: it would be the same.
    """

    actor_class: type[Member] = EvaluatorActor
    """What the members are: something with ``judge(task, candidate)``."""

    def __init__(
        self,
        judge: JudgeSettings,
        settings: EvaluatorSettings,
        timeouts: Timeouts,
        *,
        role: Mapping[str, Any] | None = None,
        asks: bool = False,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        """Begins to start the actors; the first use waits for them.

        Args:
            role: fields of Role that this run sets: places, resources.
            asks: as of Bounds.
        """
        self._settings = settings
        # A judge of a GPU keeps what it made of a task, processes and baselines, from candidate to candidate.
        self._keeps = judge.device == "cuda"
        self._timeouts = timeouts
        self._say = on_event or (lambda line: None)
        settled = Role(
            name="evaluator",
            actor_class=self.actor_class,
            start={"settings": judge},
            num_gpus=settings.gpus if judge.device == "cuda" else 0,
            **(role or {}),
        )
        # Retries are counted here, losses and judge_errors together.
        bounds = Bounds(least=settings.actors, most=max(settings.actors, settings.max_actors), asks=asks)
        self._pool = Pool(settled, settings.actors, timeouts, max_retries=0, bounds=bounds, on_event=on_event)

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        """Results as they complete, one for each job. Jobs are drawn as judges become free.

        Raises:
            ValueError: two jobs in flight with one job_id.
            ActorError: no evaluator is left and none could be started.
            SandboxError: the judge refuses to work on this machine.
        """
        source = iter(jobs)
        unfinished: dict[Hashable, _Open] = {}
        drawn_all = False
        try:
            while True:
                while not drawn_all and len(unfinished) <= self._ahead:
                    job = next(source, None)
                    if job is None:
                        drawn_all = True
                    else:
                        entry = _Open(job=job)
                        self._pool.submit(self._work(entry))
                        unfinished[job.job_id] = entry
                if not unfinished:
                    return
                for outcome in self._pool.collect(seconds=1.0):
                    entry = unfinished[outcome.work.work_id]
                    result = self._result(entry, outcome)
                    if result is None:
                        self._pool.submit(self._work(entry))
                    else:
                        del unfinished[entry.job.job_id]
                        yield result
        finally:
            self._pool.forget(set(unfinished))

    def wait_ready(self) -> None:
        """Until all judges are ready. Raises as ``judge``."""
        self._pool.wait_ready()

    def resize(self, actors: int) -> None:
        """From now on so many judges; those that are too many finish what they have."""
        self._pool.resize(actors)

    @property
    def pids(self) -> list[int]:
        """Processes of the judges that are ready."""
        return [birth.pid for birth in self._pool.births()]

    def close(self) -> None:
        """Ends the judges and their children within ``timeouts.shutdown``."""
        self._pool.close()

    def __enter__(self) -> EvaluatorPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _ahead(self) -> int:
        """Jobs that are drawn before a judge is free for them: where the pool may grow enough to show that it should,
        where tasks have their judges enough to choose from."""
        size = self._pool.size
        held = size if size >= self._settings.max_actors else min(2 * size, self._settings.max_actors)
        return held * (LOOK_AHEAD if self._keeps else 1)

    def _work(self, entry: _Open) -> Work:
        return Work(
            work_id=entry.job.job_id,
            method="judge",
            kwargs={"task": entry.job.task, "candidate": entry.job.candidate},
            timeout=self._timeouts.judge,
            avoid=entry.tried,
            affinity=entry.job.task.task_id if self._keeps else None,
        )

    def _result(self, entry: _Open, outcome: Outcome) -> JudgeResult | None:
        """The final result, or None when the job shall be tried again."""
        entry.attempts += 1
        value = outcome.value
        if isinstance(value, Failure):
            if isinstance(value.error, TaskError):
                verdict = Verdict(status=Status.JUDGE_ERROR, message=value.message)
                return self._final(entry, verdict, task_error=value.message)
            if isinstance(value.error, SandboxError):
                raise value.error
            value = Verdict(status=Status.JUDGE_ERROR, message=f"{value.kind}: {value.message}")
        if value.status is not Status.JUDGE_ERROR or entry.attempts > self._settings.max_retries:
            return self._final(entry, value)
        line = f"{entry.job.task.name}: judge_error, tried again ({value.message})"
        entry.warnings += (line,)
        entry.tried |= {outcome.seat} if outcome.seat is not None else frozenset()
        self._say(line)
        return None

    def _final(self, entry: _Open, verdict: Verdict, task_error: str = "") -> JudgeResult:
        return JudgeResult(
            job=entry.job,
            verdict=verdict,
            attempts=entry.attempts,
            warnings=entry.warnings,
            task_error=task_error,
        )
