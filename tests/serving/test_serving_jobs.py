"""Jobs in the database, and the worker that does them: nothing lost, nothing done twice, whoever dies."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from actors.errors import ActorError
from actors.types import JudgeJob, JudgeResult
from archive.store import Archive
from judge.types import Status, Verdict
from search.operators import expert_completion
from search.settings import SearchSettings
from search.types import Completion, Prompt
from serving.job_runner import JobRunner
from serving.job_store import JobStore
from serving.job_types import Job, JobState, QueueFullError
from serving.optimizer import Workbench
from serving.shared_judges import SharedJudges

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
CORRECT = Verdict(status=Status.CORRECT, speedup=0.9, speedup_low=0.8, speedup_high=1.0, best_baseline="eager")
WIN = Verdict(status=Status.WIN, speedup=1.6, speedup_low=1.5, speedup_high=1.7, best_baseline="eager")


def kernel(name: str) -> str:
    return f"import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        return {name}(x)\n"


@dataclass
class Answers:
    """Groups of two; every answer is another kernel, called k1, k2, ..."""

    asked: int = 0

    def generate(self, prompts: Sequence[Prompt]) -> list[Completion]:
        return [
            Completion(prompt_id=prompt.prompt_id, index=index, text=self._next(), policy_version=1)
            for prompt in prompts
            for index in range(2)
        ]

    def count_tokens(self, messages: Sequence[dict[str, str]]) -> int:
        return 1

    def _next(self) -> str:
        self.asked += 1
        return expert_completion(kernel(f"k{self.asked}"), "bound by memory")


@dataclass
class Judges:
    """`verdict` for each candidate, after `before` was called with its code."""

    verdict: Verdict = CORRECT
    before: Callable[[str], None] = lambda code: None
    judged: list[str] = field(default_factory=list)
    error: Exception | None = None

    def judge(self, jobs: Any) -> Iterator[JudgeResult]:
        for job in jobs:
            self.before(job.candidate.code)
            if self.error is not None:
                raise self.error
            self.judged.append(job.candidate.code)
            is_reference = "ModelNew = Model" in job.candidate.code
            yield JudgeResult(job=job, verdict=CORRECT if is_reference else self.verdict)


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[Archive]:
    store = Archive(str(tmp_path / "archive.db"))
    yield store
    store.close()


@pytest.fixture
def store(archive: Archive) -> JobStore:
    return JobStore(archive, lease_seconds=30)


def bench(archive: Archive, judges: Judges, answers: Answers | None = None) -> Workbench:
    return Workbench(rollout=answers or Answers(), evaluators=judges, archive=archive, search=SearchSettings())


def submit(store: JobStore, owner: str = "", most: int = 2) -> Job:
    request = {"task_source": TASK, "task_name": None, "max_candidates": most, "budget_seconds": 60.0}
    return store.submit(request, owner=owner, task_name="plus_one", max_waiting=100)


def kinds(store: JobStore, job: Job) -> list[str]:
    return [event.kind for event in store.events(job.job_id)]


def refreshed(store: JobStore, job: Job) -> Job:
    found = store.get(job.job_id)
    assert found is not None
    return found


# -- the table -----------------------------------------------------------------------------------------------------


def test_the_oldest_job_is_claimed_first_and_by_one_worker_only(store: JobStore) -> None:
    jobs = [submit(store) for _ in range(20)]
    claimed: list[str] = []

    def work(worker: str) -> None:
        while (job := store.claim(worker)) is not None:
            claimed.append(job.job_id)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(job.job_id for job in jobs)
    assert claimed[0] == jobs[0].job_id


def test_a_full_queue_refuses_and_a_running_job_does_not_count_as_waiting(store: JobStore) -> None:
    request = {"task_source": TASK}
    store.submit(request, owner="", task_name="t", max_waiting=2)
    store.submit(request, owner="", task_name="t", max_waiting=2)
    with pytest.raises(QueueFullError, match="2 jobs are waiting"):
        store.submit(request, owner="", task_name="t", max_waiting=2)
    store.claim("w")
    assert store.submit(request, owner="", task_name="t", max_waiting=2).state is JobState.QUEUED
    assert store.counts() == {"queued": 2, "running": 1, "done": 0, "failed": 0, "cancelled": 0}


def test_a_dead_workers_job_passes_on_and_its_late_writes_do_nothing(archive: Archive) -> None:
    store = JobStore(archive, lease_seconds=0.05)
    job = submit(store)
    first = store.claim("slow")
    assert first is not None
    assert store.renew(job.job_id, "slow", asked=2, spent_seconds=3.0) == "mine"
    time.sleep(0.1)
    second = store.claim("successor")
    assert second is not None
    assert (second.job_id, second.attempts, second.asked, second.spent_seconds) == (job.job_id, 2, 2, 3.0)
    assert store.renew(job.job_id, "slow", asked=9, spent_seconds=9.0) == "lost"
    assert not store.add_event(job.job_id, "slow", "verdict", {})
    assert not store.finish(job.job_id, "slow", JobState.DONE, result={"status": "win"})
    assert store.finish(job.job_id, "successor", JobState.FAILED, error="no", error_status=422)
    assert kinds(store, job) == ["queued", "running", "running", "failed"]


def test_a_job_that_kills_its_workers_is_given_up(archive: Archive) -> None:
    store = JobStore(archive, lease_seconds=0.01, most_attempts=2)
    job = submit(store)
    for worker in ("a", "b"):
        assert store.claim(worker) is not None
        time.sleep(0.05)
    assert store.claim("c") is None
    end = refreshed(store, job)
    assert (end.state, end.error, end.error_status) == (JobState.FAILED, "its worker died 2 times: given up", 500)


def test_what_is_released_in_good_order_costs_no_attempt(store: JobStore) -> None:
    job = submit(store)
    store.claim("w")
    assert store.release("w") == 1
    again = store.claim("x")
    assert again is not None
    assert (again.job_id, again.attempts) == (job.job_id, 1)


def test_cancelling_waiting_running_and_finished_jobs(store: JobStore) -> None:
    running, waiting = submit(store), submit(store)
    store.claim("w")
    assert store.cancel(waiting.job_id).state is JobState.CANCELLED  # type: ignore[union-attr]
    assert store.cancel(running.job_id).cancel_requested  # type: ignore[union-attr]
    assert store.renew(running.job_id, "w", asked=0, spent_seconds=0.0) == "cancelled"
    store.finish(running.job_id, "w", JobState.DONE, result={})
    assert store.cancel(running.job_id).state is JobState.DONE  # type: ignore[union-attr]
    assert store.cancel("unknown") is None


def test_old_finished_jobs_are_forgotten_and_sequence_numbers_are_never_used_again(store: JobStore) -> None:
    jobs = [submit(store) for _ in range(4)]
    for job in jobs[:3]:
        store.cancel(job.job_id)
    before = store.latest()
    assert store.prune(keep=1) == 2
    assert [store.get(job.job_id) is None for job in jobs] == [True, True, False, False]
    assert store.events(jobs[0].job_id) == []
    store.prune(keep=0)
    new = submit(store)
    assert store.events(new.job_id)[0].sequence > before


# -- the worker ----------------------------------------------------------------------------------------------------


def run(store: JobStore, workbench: Workbench, **options: Any) -> None:
    job = store.claim("w")
    assert job is not None
    JobRunner(workbench, store, worker="w", **options).run(job)


def test_a_verified_kernel_is_the_result_and_every_verdict_an_event(archive: Archive, store: JobStore) -> None:
    job = submit(store)
    run(store, bench(archive, Judges(WIN)))
    done = refreshed(store, job)
    assert done.state is JobState.DONE
    assert done.result is not None
    assert (done.result["status"], done.result["speedup_low"], done.result["asked"]) == ("win", 1.5, 2)
    record = archive.get(done.result["record_id"])
    assert record is not None
    assert (record.operator, record.code) == ("confirm", done.result["code"])
    events = store.events(job.job_id)
    assert [event.kind for event in events] == ["queued", "running", "verdict", "verdict", "verdict", "done"]
    assert {event.data["record_id"] for event in events if event.kind == "verdict"} == {
        record.record_id for record in archive.records()
    }
    assert not any("code" in event.data for event in events)
    assert events[-1].data["result"] == done.result


def test_without_a_win_there_is_no_code(archive: Archive, store: JobStore) -> None:
    job = submit(store)
    run(store, bench(archive, Judges(CORRECT)))
    result = refreshed(store, job).result
    assert result is not None
    assert (result["status"], result["code"], result["record_id"]) == ("none", None, None)
    assert result["statuses"] == {"correct": 2}


def test_a_search_that_was_cut_off_goes_on_where_it_stopped(archive: Archive) -> None:
    store = JobStore(archive, lease_seconds=0.5)
    job = submit(store, most=6)

    class KilledError(BaseException):
        """As SIGKILL: no handler sees it."""

    def die_at_the_fourth(code: str) -> None:
        if "k4(" in code:
            raise KilledError

    with pytest.raises(KilledError):
        run(store, bench(archive, Judges(WIN, before=die_at_the_fourth)), lease_seconds=0.5)
    assert refreshed(store, job).state is JobState.RUNNING
    time.sleep(0.6)
    answers = Answers(asked=100)
    second = Judges(WIN)
    run(store, bench(archive, second, answers), lease_seconds=0.5)
    done = refreshed(store, job)
    assert done.state is JobState.DONE
    assert done.attempts == 2
    assert done.result is not None
    assert done.result["asked"] == 6
    assert answers.asked - 100 == 2  # the two that the first attempt had not asked for
    records = {record.record_id for record in archive.records()}
    told = [event.data["record_id"] for event in store.events(job.job_id) if event.kind == "verdict"]
    assert set(told) == records
    assert len(told) == len(records)


def test_a_cancelled_search_ends_at_its_next_verdict(archive: Archive, store: JobStore) -> None:
    job = submit(store, most=50)
    judges = Judges(WIN, before=lambda code: store.cancel(job.job_id) and None)
    run(store, bench(archive, judges))
    assert refreshed(store, job).state is JobState.CANCELLED
    assert refreshed(store, job).result is None
    assert kinds(store, job)[-1] == "cancelled"
    assert archive.count(source="policy") <= 2


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (ActorError("no evaluator is left"), 500, "no evaluator is left"),
        (ValueError("x"), 500, "unexpected ValueError"),
    ],
)
def test_an_error_is_one_line_of_the_job(
    archive: Archive, store: JobStore, error: Exception, status: int, words: str
) -> None:
    job = submit(store)
    run(store, bench(archive, Judges(error=error)))
    end = refreshed(store, job)
    assert (end.state, end.error_status) == (JobState.FAILED, status)
    assert words in end.error
    assert store.events(job.job_id)[-1].data == {"error": end.error}


def test_the_thread_works_on_jobs_until_it_is_stopped(archive: Archive, store: JobStore) -> None:
    jobs = [submit(store) for _ in range(3)]
    runner = JobRunner(bench(archive, Judges(WIN)), store, worker="w")
    runner.start()
    end = time.monotonic() + 30
    while not all(refreshed(store, job).state.is_final for job in jobs) and time.monotonic() < end:
        time.sleep(0.05)
    runner.stop()
    assert not runner.is_alive()
    assert store.counts()["done"] == 3
    submit(store)
    assert store.counts()["queued"] == 1


def test_a_stopped_worker_gives_its_job_back_at_once(archive: Archive, store: JobStore) -> None:
    job = submit(store, most=50)
    inside, go = threading.Event(), threading.Event()

    def wait(code: str) -> None:
        inside.set()
        go.wait(30)

    runner = JobRunner(bench(archive, Judges(WIN, before=wait)), store, worker="w")
    runner.start()
    assert inside.wait(30)
    runner.stop(seconds=0.1)
    assert refreshed(store, job).state is JobState.QUEUED
    go.set()
    assert refreshed(store, job).result is None


# -- judges for several callers --------------------------------------------------------------------------------------


def job_named(name: str) -> JudgeJob:
    from judge.types import Candidate
    from tasks.loader import parse_task

    return JudgeJob(job_id=name, task=parse_task(TASK), candidate=Candidate(code=kernel(name)))


def test_callers_share_the_judges_and_each_gets_its_own_results() -> None:
    judges = Judges()
    shared = SharedJudges(judges)
    found: dict[str, list[str]] = {}

    def call(name: str) -> None:
        jobs = [job_named(f"{name}{number}") for number in range(20)]
        found[name] = [result.job.job_id for result in shared.judge(jobs)]

    threads = [threading.Thread(target=call, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert {name: sorted(ids) for name, ids in found.items()} == {
        name: sorted(f"{name}{number}" for number in range(20)) for name in "abc"
    }
    assert len(judges.judged) == 60
    shared.close()
    with pytest.raises(ActorError, match="closed"):
        list(shared.judge([job_named("late")]))


def test_a_short_caller_does_not_wait_for_a_long_one_to_end() -> None:
    seen: list[str] = []
    began, go = threading.Event(), threading.Event()

    def before(code: str) -> None:
        seen.append(code)
        began.set()
        go.wait(30)

    shared = SharedJudges(Judges(before=before))
    long = threading.Thread(target=lambda: list(shared.judge([job_named(f"long{n}") for n in range(30)])))
    long.start()
    assert began.wait(30)
    answers: list[JudgeResult] = []
    short = threading.Thread(target=lambda: answers.extend(shared.judge([job_named("short")])))
    short.start()
    while len(shared._callers) < 2:
        time.sleep(0.01)
    go.set()
    short.join(30)
    long.join(30)
    assert answers[0].job.job_id == "short"
    assert next(index for index, code in enumerate(seen) if "short(" in code) <= 2
    shared.close()


def test_an_error_of_the_pool_reaches_every_caller_and_is_remembered() -> None:
    shared = SharedJudges(Judges(error=ActorError("no evaluator is left")))
    with pytest.raises(ActorError, match="no evaluator is left"):
        list(shared.judge([job_named("a")]))
    assert shared.broken == "no evaluator is left"
    shared.close()


def test_who_leaves_early_leaves_nothing_behind() -> None:
    judges = Judges()
    shared = SharedJudges(judges)
    for result in shared.judge([job_named(f"a{n}") for n in range(50)]):
        assert result.job.job_id
        break
    assert [result.job.job_id for result in shared.judge([job_named("b")])] == ["b"]
    shared.close()
