"""The evaluator pool: with the real judge, and with small fakes where a judge must fail."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actors.evaluator_pool import EvaluatorPool
from actors.member import Birth, Member
from actors.settings import EvaluatorSettings, Timeouts
from actors.types import JudgeJob
from judge.errors import SandboxError
from judge.settings import JudgeSettings
from judge.types import Candidate, Status, Verdict
from tasks.loader import load_task, parse_task
from tasks.types import Task

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

EXAMPLES = Path(__file__).parents[2] / "examples" / "fused_gelu"
QUICK = JudgeSettings(pairs=3, calls=4, warmup_calls=1)
TIMEOUTS = Timeouts(actor_start=120)


class FakeEvaluator(Member):
    """Says what the candidate's code tells it to."""

    def start(self, settings: JudgeSettings) -> Birth:
        return self.birth()

    def judge(self, task: Task, candidate: Candidate) -> Verdict:
        word, _, rest = candidate.code.partition(" ")
        if word == "bug":
            raise ZeroDivisionError("in the judge")
        if word == "sandbox":
            raise SandboxError("no landlock here")
        if word == "flaky" and self.incarnation == int(rest):
            return Verdict(status=Status.JUDGE_ERROR, message=f"fork failed in {self.incarnation}")
        if word == "broken":
            return Verdict(status=Status.JUDGE_ERROR, message="fork failed")
        time.sleep(float(rest or 0) if word == "slow" else 0)
        return Verdict(status=Status.CORRECT, message=f"by {self.incarnation}")


class FakePool(EvaluatorPool):
    actor_class = FakeEvaluator


__import__("ray").cloudpickle.register_pickle_by_value(sys.modules[__name__])


def job(job_id: str, code: str, task: Task | None = None) -> JudgeJob:
    return JudgeJob(job_id=job_id, task=task or load_task(EXAMPLES / "task.py"), candidate=Candidate(code=code))


def example(name: str) -> str:
    return (EXAMPLES / f"{name}.py").read_text()


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def fakes(events: list[str]) -> Iterator[FakePool]:
    with FakePool(QUICK, EvaluatorSettings(actors=2, max_retries=2), TIMEOUTS, on_event=events.append) as pool:
        yield pool


@pytest.fixture(scope="module")
def judges(ray_cluster: None) -> Iterator[EvaluatorPool]:
    with EvaluatorPool(QUICK, EvaluatorSettings(actors=2, max_retries=2), TIMEOUTS) as pool:
        yield pool


def test_a_judge_error_is_tried_again_by_another_judge(fakes: FakePool, events: list[str]) -> None:
    fakes.wait_ready()
    results = [r for culprit in (0, 1) for r in fakes.judge([job("j", f"flaky {culprit}")])]
    assert {r.verdict.status for r in results} == {Status.CORRECT}
    assert sorted(r.attempts for r in results) in ([1, 2], [1, 1], [2, 2])
    for result in results:
        assert len(result.warnings) == result.attempts - 1
    retried = [r for r in results if r.attempts == 2]
    assert len([e for e in events if "tried again" in e]) == len(retried)


def test_a_judge_that_always_fails_ends_as_judge_error_after_the_retries(fakes: FakePool) -> None:
    results = {r.job.job_id: r for r in fakes.judge([job("a", "broken"), job("b", "fine"), job("c", "bug")])}
    assert [results[n].verdict.status for n in "abc"] == [Status.JUDGE_ERROR, Status.CORRECT, Status.JUDGE_ERROR]
    assert [results[n].attempts for n in "abc"] == [3, 1, 3]
    assert "ZeroDivisionError: in the judge" in results["c"].verdict.message


def test_a_missing_sandbox_stops_the_run(fakes: FakePool) -> None:
    with pytest.raises(SandboxError, match="no landlock here"):
        list(fakes.judge([job("a", "sandbox")]))
    assert [r.verdict.status for r in fakes.judge([job("a", "fine")])] == [Status.CORRECT]


def test_a_judge_past_its_deadline_is_replaced(events: list[str]) -> None:
    timeouts = Timeouts(actor_start=120, judge=1.5)
    with FakePool(QUICK, EvaluatorSettings(actors=1, max_retries=1), timeouts, on_event=events.append) as pool:
        results = {r.job.job_id: r for r in pool.judge([job("slow", "slow 60"), job("fine", "fine")])}
    assert results["slow"].verdict.status is Status.JUDGE_ERROR
    assert results["slow"].attempts == 2
    assert "no answer to judge within 1.5 s" in results["slow"].verdict.message
    assert results["fine"].verdict.status is Status.CORRECT


def test_the_payload_comes_back_and_a_job_is_judged_once(fakes: FakePool) -> None:
    marker = object()  # could not be sent to another process as itself
    jobs = [JudgeJob(job_id="p", task=job("x", "").task, candidate=Candidate(code="fine"), payload=marker)]
    (result,) = fakes.judge(jobs)
    assert result.job.payload is marker
    with pytest.raises(ValueError, match="in the pool already"):
        list(fakes.judge([job("same", "slow 1"), job("same", "fine")]))


@pytest.mark.timeout(400)
def test_the_real_judge_judges_in_actors_and_survives_a_kill(judges: EvaluatorPool) -> None:
    judges.wait_ready()
    jobs = [job(f"{n} {name}", example(name)) for n in range(2) for name in ("slow", "wrong")]
    verdicts: dict[str, Verdict] = {}
    for result in judges.judge(jobs):
        if not verdicts:
            busy = psutil.Process(judges.pids[0])
            children = busy.children(recursive=True)
            os.kill(busy.pid, signal.SIGKILL)
            assert not psutil.wait_procs(children, timeout=5)[1]
        assert result.job.job_id not in verdicts
        verdicts[result.job.job_id] = result.verdict
    assert sorted(verdicts) == sorted(j.job_id for j in jobs)
    for job_id, verdict in verdicts.items():
        good = (Status.CORRECT, Status.WIN) if "slow" in job_id else (Status.INCORRECT,)
        assert verdict.status in good, (job_id, verdict.message)


def test_a_task_whose_own_code_fails_is_a_value_and_not_tried_again(judges: EvaluatorPool) -> None:
    source = example("task").replace("def get_inputs():", "def get_inputs():\n    raise OSError('no data')\n")
    task = parse_task(source, "bad_task.py")
    (result,) = judges.judge([job("t", example("slow"), task)])
    assert result.verdict.status is Status.JUDGE_ERROR
    assert result.attempts == 1
    assert "no data" in result.task_error


def test_close_ends_the_judges_and_their_children() -> None:
    pool = EvaluatorPool(QUICK, EvaluatorSettings(actors=1), TIMEOUTS)
    pool.wait_ready()
    process = psutil.Process(pool.pids[0])
    ours = [process, *process.children(recursive=True)]
    assert len(ours) > 1, "the judge has a zygote"
    pool.close()
    assert not psutil.wait_procs(ours, timeout=5)[1]
