"""Works on jobs, one after the other: a timing must have the machine to itself.

runner = JobRunner(bench, store, worker="w1")
runner.start()      # a thread
runner.stop()       # gives the job in hand back to the queue
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from typing import Any

from archive.types import Record
from search.errors import SearchError
from serving.job_store import JobStore
from serving.job_types import Job, JobState
from serving.messages import OptimizeRequest, reply_of
from serving.optimizer import CONFIRM, COPY, UNPARSED, OptimizeResult, Workbench, optimize_task
from tasks.errors import TaskError
from tasks.loader import parse_task, suite_task
from tasks.types import Task
from warpsmith import WarpsmithError

POLL_SECONDS = 0.25
PRUNE_SECONDS = 60.0
_log = logging.getLogger("warpsmith.jobs")


def task_of(request: OptimizeRequest) -> Task:
    """The task that a request names or brings, read and never run. Raises TaskError.

    By name only from the suite: a path would let a client read this machine's files.
    """
    return suite_task(request.task_name) if request.task_name else parse_task(request.task_source or "")


class JobRunner:
    """See the module's docstring."""

    def __init__(
        self, bench: Workbench, store: JobStore, *, worker: str, lease_seconds: float = 15.0, keep_jobs: int = 1000
    ) -> None:
        """
        Args:
            worker: a name that no other process has, nor had.
            lease_seconds: of the store's leases; signs of life come four times as often.
        """
        self._bench, self._store, self._worker = bench, store, worker
        self._beat = lease_seconds / 4
        self._keep_jobs = keep_jobs
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Work in a thread until ``stop``."""
        self._thread = threading.Thread(target=self._work, name="jobs", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 10.0) -> None:
        """Give the job in hand back at once; the search itself ends at its next verdict."""
        self._stop.set()
        try:
            self._store.release(self._worker)
        except WarpsmithError as error:
            _log.error("jobs are not given back: %s", error)
        if self._thread is not None:
            self._thread.join(seconds)

    def is_alive(self) -> bool:
        return self._thread is None or self._thread.is_alive()

    def _work(self) -> None:
        prune_at = 0.0
        while not self._stop.is_set():
            try:
                job = self._store.claim(self._worker)
                if job is not None:
                    self.run(job)
                    continue
                if time.monotonic() > prune_at:
                    prune_at = time.monotonic() + PRUNE_SECONDS
                    self._store.prune(self._keep_jobs)
            except WarpsmithError as error:  # the database is away: the lease runs out, and the job comes back
                _log.error("%s", error)
                self._stop.wait(2.0)
            self._stop.wait(POLL_SECONDS)
        with contextlib.suppress(WarpsmithError):
            self._store.release(self._worker)  # what was claimed while `stop` gave back

    def run(self, job: Job) -> None:
        """Search for one claimed job, to its end or until it is cancelled, lost or given back."""
        progress = _Progress(job, self._store, self._worker)
        over = threading.Event()
        beat = threading.Thread(target=self._keep_lease, args=(progress, over), name="lease", daemon=True)
        beat.start()
        outcome: dict[str, Any]
        try:
            result = self._search(job, progress)
            if result.stopped_by == "caller":
                if progress.state == "cancelled":
                    self._store.finish(job.job_id, self._worker, JobState.CANCELLED)
                return
            outcome = {"state": JobState.DONE, "result": progress.reply(result)}
        except (TaskError, SearchError) as error:  # the request's task cannot be used
            outcome = {"state": JobState.FAILED, "error": _line(error), "error_status": 422}
        except WarpsmithError as error:
            outcome = {"state": JobState.FAILED, "error": _line(error), "error_status": 500}
        except Exception as error:
            _log.exception("job %s", job.job_id)
            text = f"unexpected {type(error).__name__}: see the service's log"
            outcome = {"state": JobState.FAILED, "error": text, "error_status": 500}
        finally:
            over.set()
            beat.join()
        self._store.finish(job.job_id, self._worker, **outcome)

    def _search(self, job: Job, progress: _Progress) -> OptimizeResult:
        request = OptimizeRequest.model_validate(job.request)
        return optimize_task(
            task_of(request),
            self._bench,
            max_candidates=max(0, (request.max_candidates or 1) - job.asked),
            budget_seconds=None if request.budget_seconds is None else request.budget_seconds - job.spent_seconds,
            on_record=progress.on_record,
            should_stop=lambda: self._stop.is_set() or progress.state != "mine",
        )

    def _keep_lease(self, progress: _Progress, over: threading.Event) -> None:
        while not over.wait(self._beat):
            try:
                progress.renew()
            except WarpsmithError as error:
                _log.error("no sign of life could be given: %s", error)


class _Progress:
    """How far one attempt is; told to the store."""

    def __init__(self, job: Job, store: JobStore, worker: str) -> None:
        self._job, self._store, self._worker = job, store, worker
        self._began = time.monotonic()
        self._asked = 0
        self.state = "mine"

    @property
    def seconds(self) -> float:
        """Of all attempts."""
        return self._job.spent_seconds + time.monotonic() - self._began

    def renew(self) -> None:
        asked = self._job.asked + self._asked
        self.state = self._store.renew(self._job.job_id, self._worker, asked=asked, spent_seconds=self.seconds)

    def on_record(self, record: Record, asked: int) -> None:
        self._asked = asked
        event = verdict_event(record, self._job.asked + asked)
        if not self._store.add_event(self._job.job_id, self._worker, "verdict", event):
            self.state = "lost"
        elif self.state == "mine":
            self.renew()  # so that a cancellation is seen at once

    def reply(self, result: OptimizeResult) -> dict[str, Any]:
        """The answer, with what all attempts together have spent."""
        events = [event.data for event in self._store.events(self._job.job_id) if event.kind == "verdict"]
        names = Counter(UNPARSED if UNPARSED in event["flags"] else event["status"] for event in events)
        judged = sum(not {UNPARSED, COPY} & set(event["flags"]) for event in events)
        reply = reply_of(result).model_dump(mode="json")
        return reply | {
            "asked": self._job.asked + result.asked,
            "judged": max(judged, result.judged),
            "statuses": dict(names),
            "seconds": round(self.seconds, 2),
        }


def verdict_event(record: Record, asked: int) -> dict[str, Any]:
    """What the event stream says of a record. No code: only a verified kernel leaves the service, as the result."""
    verdict = record.verdict
    return {
        "record_id": record.record_id,
        "source": record.source,
        "confirms": record.parents[0] if record.operator == CONFIRM else None,
        "status": str(verdict.status),
        "speedup": verdict.speedup,
        "speedup_low": verdict.speedup_low,
        "speedup_high": verdict.speedup_high,
        "candidate_ms": verdict.candidate_ms,
        "best_baseline": verdict.best_baseline,
        "flags": list(verdict.flags),
        "message": verdict.message,
        "asked": asked,
    }


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
