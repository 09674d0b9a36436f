"""Contrastive steps with sampling and judging ahead of the learner, by a fixed lag.

Step k is sampled with the weights after update ``max(0, k - 1 - run.max_staleness)``, neither older nor newer: which
weights wrote an answer does not depend on who was faster, so a streamed run can be resumed and repeated like any
other, and with a lag of 0 it is the run that takes turns.

One thread asks and judges; the rollout engines and the judges are its own. The caller's thread learns.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from actors.errors import ActorError, LearnerLostError
from actors.sync import mean_difference
from actors.types import SyncReport
from cluster.errors import ConfigError
from cluster.progress import sync
from cluster.run import Run
from cluster.stages import Collected, collect, contrastive_step

JOIN_SECONDS = 15.0
"""Longest wait for the asking thread after its pools have been closed."""


def stream_steps(run: Run) -> None:
    """All contrastive steps that are left.

    Raises what asking, judging or learning raises; ActorError when nothing was collected within the deadlines of one
    rollout and one judgement of everything in it.
    """
    first, last = run.state.step + 1, run.config.run.steps
    if first > last:
        return
    ahead = _Ahead(run, first, last)
    try:
        for step in range(first, last + 1):
            contrastive_step(run, ahead.take(step), on_sync=ahead.offer)
    except LearnerLostError:
        ahead.finish()  # the pools are needed again
        raise
    finally:
        ahead.close()


class _Ahead:
    """The asking thread, and what it and the learner hand each other."""

    def __init__(self, run: Run, first: int, last: int) -> None:
        self._run, self._lag = run, run.config.run.max_staleness
        self._weights: dict[int, SyncReport] = {}
        self._arrived = threading.Condition()
        self._stopped = False
        self._steps: queue.Queue[Collected | BaseException] = queue.Queue()
        self._loaded: Any = None
        self._stale_start(first)
        self._thread = threading.Thread(target=self._work, args=(first, last), name="ahead", daemon=True)
        self._thread.start()

    def take(self, step: int) -> Collected:
        """The next step's groups."""
        deadline = self._deadline
        try:
            found = self._steps.get(timeout=deadline)
        except queue.Empty:
            raise ActorError(f"step {step} was not sampled and judged within {deadline:g} s") from None
        if isinstance(found, BaseException):
            raise found
        assert found.step == step
        return found

    def offer(self, after: int, report: SyncReport) -> None:
        """The weights after an update, for the rollouts that shall begin with them."""
        with self._arrived:
            self._weights[after] = report
            self._weights = {at: one for at, one in self._weights.items() if at >= after - self._lag}
            self._arrived.notify_all()

    @property
    def _deadline(self) -> float:
        """Seconds that one step's asking and judging may take."""
        config, timeouts = self._run.config, self._run.config.timeouts
        answers = config.run.tasks_per_step * config.rollout.group_size
        return timeouts.sync + (timeouts.rollout + timeouts.judge * answers) * config.search.turns

    def finish(self) -> None:
        """Lets the thread finish the step that it is at, whose records are then found in the archive."""
        with self._arrived:
            self._stopped = True
            self._arrived.notify_all()
        self._thread.join(self._deadline)

    def close(self) -> None:
        """Ends the thread. Unless it has finished, its pools are closed: nothing else ends a wait inside them."""
        with self._arrived:
            self._stopped = True
            self._arrived.notify_all()
        if self._thread.is_alive():
            session = self._run.session
            for pool in (session.rollout, session.evaluators):
                close: Callable[[], None] | None = getattr(pool, "close", None)
                if close is not None:
                    with suppress(Exception):  # the one who closes the session tries again and says why
                        close()
            self._thread.join(JOIN_SECONDS)

    def _stale_start(self, first: int) -> None:
        # After a resume the first rollouts begin with weights that are older than the learner's.
        done = first - 1
        for at, version in self._run.state.published.items():
            if at < done:
                self._weights[at] = SyncReport(
                    version=version, learner_logprobs=(), engine_logprobs=(), difference=float("nan")
                )
        self._weights[done] = sync(self._run, into_engines=False)
        # The weights before the first step too: a run that is killed early begins again with them.
        known = {**self._run.state.published, done: self._weights[done].version}
        self._run.state = self._run.state.model_copy(update={"published": known})
        self._run.folder.write_state(self._run.state)
        missing = [at for at in range(max(0, done - self._lag), done) if at not in self._weights]
        if missing:
            raise ConfigError(
                f"the weights after step {missing[0]} are not known to this run, and run.max_staleness = {self._lag} "
                "asks for them: resume with the configuration that it began with"
            )

    def _work(self, first: int, last: int) -> None:
        try:
            for step in range(first, last + 1):
                report = self._wait_for(max(0, step - 1 - self._lag))
                if report is None:
                    return
                self._load(report)
                self._steps.put(collect(self._run, "contrastive", step))
        except BaseException as error:  # handed to the learner's thread, which raises it
            self._steps.put(error)

    def _wait_for(self, after: int) -> SyncReport | None:
        with self._arrived:
            self._arrived.wait_for(lambda: self._stopped or after in self._weights)
            return None if self._stopped else self._weights[after]

    def _load(self, report: SyncReport) -> None:
        version, session = report.version, self._run.session
        if not session.live or self._loaded == version:
            return
        session.the_rollout.load_weights(version)
        self._loaded = version
        if report.learner_logprobs:
            engines = session.the_rollout.probe(self._run.probe_ids)
            difference = max(mean_difference(report.learner_logprobs, values) for values in engines)
            limit = self._run.config.rollout.max_probe_difference
            if not difference <= limit:
                raise ActorError(
                    f"weights in the engine and the learner disagree: mean |delta logprob| {difference:.3g} > "
                    f"{limit:g} after version {version.policy_version}; start again from the last checkpoint"
                )
