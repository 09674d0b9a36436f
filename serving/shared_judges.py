"""One pool of judges for several callers: the search of a job, and calls of /v1/judge.

A pool is used by one thread at a time; here that thread is its own, and callers take turns job by job.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from actors.errors import ActorError
from actors.types import JudgeJob, JudgeResult

_IDLE_SECONDS = 0.5


class Pool(Protocol):
    """What is needed of actors.pools.EvaluatorPool."""

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]: ...


@dataclass(eq=False)
class _Caller:
    waiting: deque[JudgeJob]
    results: queue.Queue[JudgeResult | Exception] = field(default_factory=queue.Queue)


class SharedJudges:
    """judges = SharedJudges(pool); then judges.judge(jobs) from any thread."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._callers: deque[_Caller] = deque()
        self._owner: dict[str, _Caller] = {}
        self._changed = threading.Condition()
        self._closed = False
        self.broken = ""
        """Why the pool can judge no more; empty while it can."""
        self._thread = threading.Thread(target=self._work, name="judges", daemon=True)
        self._thread.start()

    def judge(self, jobs: Iterable[JudgeJob]) -> Iterator[JudgeResult]:
        """Results as they complete, one for each job. Leaving early gives up what has not begun.

        Raises as ``EvaluatorPool.judge``; ActorError when closed.
        """
        caller = _Caller(waiting=deque(jobs))
        number = len(caller.waiting)
        with self._changed:
            if self._closed:
                raise ActorError("the judges are closed")
            self._callers.append(caller)
            self._changed.notify()
        try:
            for _ in range(number):
                result = caller.results.get()
                if isinstance(result, Exception):
                    raise result
                yield result
        finally:
            with self._changed:
                caller.waiting.clear()
                if caller in self._callers:
                    self._callers.remove(caller)

    def close(self) -> None:
        """Callers that wait get an ActorError. The pool itself is its maker's to close, after this."""
        with self._changed:
            self._closed = True
            self._changed.notify()
        self._fail(ActorError("the judges are closed"))

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._closed and not any(caller.waiting for caller in self._callers):
                    self._changed.wait(_IDLE_SECONDS)
                if self._closed:
                    return
            try:
                for result in self._pool.judge(self._draw()):
                    self._give(result)
                self.broken = ""
            except Exception as error:  # also what is not ours: callers must not wait for ever
                self.broken = " ".join(str(error).split())
                self._fail(error)

    def _draw(self) -> Iterator[JudgeJob]:
        """The callers' jobs, one of each in turn, until none waits."""
        while True:
            with self._changed:
                caller = next((one for one in self._callers if one.waiting), None)
                if caller is None or self._closed:
                    return
                job = caller.waiting.popleft()
                self._callers.remove(caller)
                self._callers.append(caller)  # the others first next time
                self._owner[job.job_id] = caller
            yield job

    def _give(self, result: JudgeResult) -> None:
        with self._changed:
            caller = self._owner.pop(result.job.job_id, None)
        if caller is not None:
            caller.results.put(result)

    def _fail(self, error: Exception) -> None:
        with self._changed:
            callers = {id(caller): caller for caller in [*self._callers, *self._owner.values()]}
            self._callers.clear()
            self._owner.clear()
        for caller in callers.values():
            caller.results.put(error)
