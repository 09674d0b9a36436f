"""The pool on real Ray actors that crash, wedge and raise on demand."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actors.errors import ActorError
from actors.ledger import Work
from actors.member import Birth, FatalError, Member
from actors.pool import Pool
from actors.seats import Role, State
from actors.settings import Timeouts
from actors.types import Failure

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("ray_cluster")]

TIMEOUTS = Timeouts(actor_start=60, shutdown=10)


class Worker(Member):
    """Does as it is told. What it did goes into a file, one line a call, so that tests see what dead ones did too."""

    log: Path | None = None
    state: Any = None

    def start(self, log: str | None = None, refuse: str = "", pause: float = 0.0) -> Birth:
        self.log = Path(log) if log else None
        if refuse == "own":
            raise ActorError("no such model: /nowhere")
        if refuse == "die":
            os._exit(1)
        time.sleep(pause)
        return self.birth()

    def note(self, what: str) -> None:
        if self.log:
            with self.log.open("a") as file:
                file.write(f"{self.incarnation} {what}\n")

    def double(self, n: int, seconds: float = 0.0) -> int:
        self.note(f"double {n}")
        time.sleep(seconds)
        return 2 * n

    def die_once(self, n: int, marker: str) -> int:
        if not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return 2 * n

    def wedge_once(self, n: int, marker: str) -> int:
        if not Path(marker).exists():
            Path(marker).touch()
            os.kill(os.getpid(), signal.SIGSTOP)  # neither works nor dies; cannot read Ray's kill message either
        return 2 * n

    def die(self) -> None:
        os._exit(1)

    def fail(self) -> None:
        raise RuntimeError("bad luck\nsecond line")

    def fatal(self, marker: str) -> str:
        if not Path(marker).exists():
            Path(marker).touch()
            raise FatalError("the engine is broken")
        return "mended"

    def take_state(self, value: int) -> None:
        if value < 0:
            raise ActorError(f"state {value} is refused")
        self.note(f"state {value}")
        self.state = value

    def state_now(self) -> tuple[int, Any]:
        return self.incarnation, self.state


# Workers of Ray cannot import a test file.
__import__("ray").cloudpickle.register_pickle_by_value(sys.modules[__name__])


@pytest.fixture
def make_pool() -> Iterator[Callable[..., tuple[Pool, list[str]]]]:
    pools: list[Pool] = []

    def make(
        size: int = 2, start: dict[str, Any] | None = None, timeouts: Timeouts = TIMEOUTS, cpus: float = 1, **kw: Any
    ) -> tuple[Pool, list[str]]:
        events: list[str] = []
        role = Role(name="worker", actor_class=Worker, start=start or {}, num_cpus=cpus)
        pools.append(Pool(role, size, timeouts, on_event=events.append, **kw))
        return pools[-1], events

    yield make
    for pool in pools:
        pool.close()


def works(count: int, seconds: float = 0.0, method: str = "double") -> list[Work]:
    return [Work(work_id=n, method=method, kwargs={"n": n, "seconds": seconds}, timeout=60.0) for n in range(count)]


def test_each_result_arrives_once_when_an_actor_is_killed_in_the_middle(make_pool: Any) -> None:
    pool, events = make_pool(size=2)
    pool.wait_ready()
    values: dict[int, int] = {}
    for number, outcome in enumerate(pool.run(works(12, seconds=0.2))):
        assert outcome.work.work_id not in values
        values[outcome.work.work_id] = outcome.value
        if number == 2:
            os.kill(pool.births()[0].pid, signal.SIGKILL)
    assert values == {n: 2 * n for n in range(12)}
    assert any("lost" in event and "requeued" in event for event in events), events


def test_works_are_drawn_as_members_become_free(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    drawn: list[int] = []

    def source() -> Iterator[Work]:
        for work in works(10):
            drawn.append(work.work_id)
            yield work

    ahead = 0
    for done, _outcome in enumerate(pool.run(source()), start=1):
        ahead = max(ahead, len(drawn) - done)
    assert len(drawn) == 10
    assert ahead <= 3


def test_works_of_one_affinity_stay_with_one_member_while_there_is_other_work(make_pool: Any) -> None:
    pool, _ = make_pool(size=3)
    pool.wait_ready()
    # As they come from a step: all of a task side by side.
    some = [
        Work(
            work_id=(kind, n),
            method="double",
            kwargs={"n": n, "seconds": 0.05},
            timeout=60.0,
            affinity=kind,
        )
        for kind in "abc"
        for n in range(6)
    ]
    for work in some:
        pool.submit(work)
    seats: dict[str, list[int | None]] = {kind: [] for kind in "abc"}
    while any(len(found) < 6 for found in seats.values()):
        for outcome in pool.collect(seconds=1.0):
            seats[outcome.work.work_id[0]].append(outcome.seat)
    assert len({found[0] for found in seats.values()}) == 3
    # Only at the very end may one that has nothing left help out.
    assert all(len(set(found[:4])) == 1 for found in seats.values()), seats


def test_a_single_affinity_keeps_no_member_idle(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    pool.wait_ready()
    some = [
        Work(work_id=n, method="double", kwargs={"n": n, "seconds": 0.3}, timeout=60.0, affinity="one")
        for n in range(4)
    ]
    assert {outcome.seat for outcome in pool.run(some)} == {0, 1}


def test_a_wedged_call_ends_at_its_deadline_and_its_work_is_done_by_a_replacement(
    make_pool: Any, tmp_path: Path
) -> None:
    pool, events = make_pool(size=1)
    pool.wait_ready()
    wedged = psutil.Process(pool.births()[0].pid)
    work = Work(work_id="w", method="wedge_once", kwargs={"n": 4, "marker": str(tmp_path / "m")}, timeout=1.5)
    outcomes = list(pool.run([work]))
    assert [(o.value, o.attempts) for o in outcomes] == [(8, 2)]
    assert not psutil.wait_procs([wedged], timeout=3)[1]
    assert any("no answer to wedge_once within 1.5 s" in event for event in events), events


def test_an_exception_is_a_value_and_its_actor_goes_on(make_pool: Any) -> None:
    pool, events = make_pool(size=1)
    pool.wait_ready()
    before = pool.births()
    (outcome,) = pool.run([Work(work_id="f", method="fail", timeout=30.0)])
    assert isinstance(outcome.value, Failure)
    assert (outcome.value.kind, outcome.value.message) == ("RuntimeError", "bad luck")
    assert "in fail" in outcome.value.trace
    assert [o.value for o in pool.run(works(1))] == [0]
    assert pool.births() == before
    assert not events


def test_work_that_kills_every_actor_becomes_a_failure_and_spares_what_waits_behind_it(make_pool: Any) -> None:
    pool, _ = make_pool(size=1, in_flight=3, max_retries=1)
    deadly = Work(work_id="deadly", method="die", timeout=30.0)
    outcomes = {o.work.work_id: o for o in pool.run([deadly, *works(4)])}
    assert isinstance(outcomes["deadly"].value, Failure)
    assert outcomes["deadly"].value.kind == "Lost"
    assert outcomes["deadly"].attempts == 2
    assert [outcomes[n].value for n in range(4)] == [0, 2, 4, 6]
    assert [outcomes[n].attempts for n in range(4)] == [1, 1, 1, 1]


def test_nothing_is_lost_when_far_more_is_asked_than_actors_take(make_pool: Any) -> None:
    pool, _ = make_pool(size=2, in_flight=2)
    for work in works(60):
        pool.submit(work)
    seen: Counter[int] = Counter()
    while len(seen) < 60:
        seen.update(outcome.work.work_id for outcome in pool.collect(5.0))
    assert set(seen.values()) == {1}
    assert pool.collect(0.1) == []


def test_calls_that_the_manager_drops_are_queued_again(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    pool.wait_ready()
    # What the manager does to an actor after any error: calls to it are dropped without a word.
    dropped = pool._seats[0].actor_id
    pool._manager.set_actor_state(dropped, False)
    for work in works(6):
        pool.submit(work)
    values = [o.value for _ in range(20) for o in pool.collect(0.1)]
    pool._manager.set_actor_state(dropped, True)
    values += [o.value for _ in range(20) for o in pool.collect(0.5)]
    assert sorted(values) == [0, 2, 4, 6, 8, 10]


def test_a_replacement_is_told_the_state_before_it_works(make_pool: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    pool, _ = make_pool(size=2, start={"log": str(log)})
    pool.set_state(State(key=7, method="take_state", kwargs={"value": 7}, timeout=30.0))
    assert [state for _, state in pool.broadcast("state_now", {}, 30.0)] == [7, 7]
    os.kill(pool.births()[1].pid, signal.SIGKILL)
    assert sorted(o.value for o in pool.run(works(8, seconds=0.3))) == [2 * n for n in range(8)]
    told = pool.broadcast("state_now", {}, 30.0)
    assert [state for _, state in told] == [7, 7]
    for incarnation, _ in told:
        lines = [line for line in log.read_text().splitlines() if line.startswith(f"{incarnation} ")]
        assert lines[0] == f"{incarnation} state 7"


def test_a_refused_state_is_an_error_and_the_old_one_stays(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    pool.set_state(State(key=1, method="take_state", kwargs={"value": 1}, timeout=30.0))
    for value in (-5, -6):  # under one key: the second is not answered with the first one's refusal
        with pytest.raises(ActorError, match=f"state {value} is refused"):
            pool.set_state(State(key=2, method="take_state", kwargs={"value": value}, timeout=30.0))
    assert [state for _, state in pool.broadcast("state_now", {}, 30.0)] == [1, 1]


def test_a_fatal_failure_replaces_the_actor(make_pool: Any, tmp_path: Path) -> None:
    pool, events = make_pool(size=1)
    pool.wait_ready()
    before = pool.births()[0].pid
    (outcome,) = pool.run([Work(work_id=0, method="fatal", kwargs={"marker": str(tmp_path / "m")}, timeout=30.0)])
    assert outcome.value == "mended"
    assert pool.births()[0].pid != before
    assert any("the engine is broken" in event for event in events)


def test_a_start_that_warpsmith_refuses_is_raised_as_it_is(make_pool: Any) -> None:
    pool, _ = make_pool(size=2, start={"refuse": "own"})
    with pytest.raises(ActorError, match=r"^no such model: /nowhere$"):
        pool.wait_ready()
    with pytest.raises(ActorError, match="no such model: /nowhere"):  # and again, instead of a wait for nobody
        pool.wait_ready()
        list(pool.run(works(1)))


def test_actors_that_die_while_starting_are_named_after_some_tries(make_pool: Any) -> None:
    pool, _ = make_pool(size=1, start={"refuse": "die"})
    with pytest.raises(ActorError, match="all 1 worker actors are gone") as caught:
        list(pool.run(works(1)))
    assert "\n" not in str(caught.value)
    with pytest.raises(ActorError, match="all 1 worker actors are gone"):
        list(pool.run(works(1)))


def test_a_pool_without_room_names_what_it_waited_for(make_pool: Any) -> None:
    pool, _ = make_pool(size=1, cpus=64, timeouts=Timeouts(actor_start=2))
    with pytest.raises(ActorError, match=r"no answer to start within 2 s; asked for 64 CPU, \d of 6 free"):
        list(pool.run(works(1)))


def test_the_same_work_is_not_taken_twice(make_pool: Any) -> None:
    pool, _ = make_pool(size=1)
    pool.submit(works(1)[0])
    with pytest.raises(ValueError, match="work 0 is in the pool already"):
        pool.submit(works(1)[0])


def test_an_abandoned_run_does_not_disturb_the_next(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    for _ in pool.run(works(20, seconds=0.3)):
        break
    again = [(o.work.work_id, o.value) for o in pool.run(works(4))]
    assert sorted(again) == [(0, 0), (1, 2), (2, 4), (3, 6)]


def test_close_leaves_no_process(make_pool: Any) -> None:
    pool, _ = make_pool(size=2)
    pool.wait_ready()
    pool.submit(works(1, seconds=60)[0])
    pool.collect(0.3)
    processes = [psutil.Process(birth.pid) for birth in pool.births()]
    pool.close()
    assert not psutil.wait_procs(processes, timeout=3)[1]  # dead already; Ray may have to collect them yet
    pool.close()
    for use in (pool.wait_ready, lambda: list(pool.run(works(1)))):
        with pytest.raises(ActorError, match="closed"):
            use()
