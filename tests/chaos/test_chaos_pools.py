"""Pools on a cluster whose nodes come and go."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from actors.elastic import Bounds
from actors.errors import ActorError
from actors.ledger import Outcome, Work
from actors.member import Birth, Member
from actors.placement import Bundles, reserve
from actors.pool import Pool
from actors.seats import Role, State
from actors.settings import Timeouts

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

TIMEOUTS = Timeouts(actor_start=60, shutdown=5)


class Worker(Member):
    state = 0

    def start(self) -> Birth:
        return self.birth()

    def double(self, n: int, seconds: float = 0.0) -> tuple[int, str]:
        time.sleep(seconds)
        return 2 * n, self.birth().node_id

    def take_state(self, value: int) -> None:
        self.state = value

    def freeze_once(self, n: int, first: int) -> tuple[int, str]:
        if self.incarnation == first:
            os.kill(os.getpid(), signal.SIGSTOP)
        return self.double(n)

    def state_now(self) -> int:
        return self.state


# Workers of Ray cannot import a test file.
__import__("ray").cloudpickle.register_pickle_by_value(sys.modules[__name__])


def worker(**options: Any) -> Role:
    return Role(name="worker", actor_class=Worker, num_cpus=1, **options)


def endless(seconds: float = 0.2) -> Iterator[Work]:
    n = 0
    while True:
        yield Work(work_id=n, method="double", kwargs={"n": n, "seconds": seconds}, timeout=30.0)
        n += 1


def until(outcomes: Iterator[Outcome], enough: Callable[[Outcome], bool], seconds: float = 60.0) -> list[Outcome]:
    """Outcomes up to the first that is enough; fails when none was in time."""
    end, seen = time.monotonic() + seconds, []
    for outcome in outcomes:
        seen.append(outcome)
        if enough(outcome):
            return seen
        assert time.monotonic() < end, [one.value for one in seen[-5:]]
    raise AssertionError("no more work")


def test_a_new_node_is_used_and_a_lost_one_costs_only_what_was_under_way(nodes: Any, closing: Any) -> None:
    events: list[str] = []
    pool = closing(Pool(worker(), 1, TIMEOUTS, bounds=Bounds(least=1, most=4), on_event=events.append))
    pool.set_state(State(key=1, method="take_state", kwargs={"value": 1}, timeout=30.0))
    home = pool.births()[0].node_id
    outcomes = pool.run(endless())
    seen = until(outcomes, lambda outcome: outcome.value[1] == home)
    guest = nodes.add_node(num_cpus=2)
    seen += until(outcomes, lambda outcome: outcome.value[1] == guest.node_id)
    assert pool.size > 1
    nodes.remove_node(guest, allow_graceful=False)
    # The works that were on it come back from where there is still a member, each once.
    last = max(outcome.work.work_id for outcome in seen)
    seen += until(outcomes, lambda outcome: outcome.work.work_id > last + 15)
    seen += until(outcomes, lambda outcome: pool.live == 1)
    ids = [outcome.work.work_id for outcome in seen]
    assert len(ids) == len(set(ids))
    # What was drawn before the loss is all there; the last few since then are still with members.
    assert set(range(last + 1)) <= set(ids)
    assert all(outcome.value[0] == 2 * outcome.work.work_id for outcome in seen)
    assert any("is here" in event for event in events), events
    assert any("lost" in event for event in events), events


def test_guests_are_given_the_state_before_they_work_and_go_when_nothing_is_left(nodes: Any, closing: Any) -> None:
    nodes.add_node(num_cpus=2)
    bounds = Bounds(least=1, most=3, idle_seconds=1.0)
    pool = closing(Pool(worker(), 1, TIMEOUTS, bounds=bounds))
    pool.set_state(State(key=7, method="take_state", kwargs={"value": 7}, timeout=30.0))
    until(pool.run(endless()), lambda outcome: pool.live == 3)
    pool.wait_ready()
    assert pool.broadcast("state_now", {}, 30.0) == [7, 7, 7]
    # One long work, and nothing for the others.
    slow = Work(work_id="slow", method="double", kwargs={"n": 1, "seconds": 6.0}, timeout=30.0)
    assert [outcome.value[0] for outcome in pool.run([slow])] == [2]
    assert pool.size == 1


def test_a_pool_is_resized_while_it_works(nodes: Any, closing: Any) -> None:
    nodes.add_node(num_cpus=3)
    pool = closing(Pool(worker(), 3, TIMEOUTS))
    outcomes = pool.run(endless(0.1))
    until(outcomes, lambda outcome: pool.live == 3)
    pool.resize(1)
    seen = until(outcomes, lambda outcome: pool.live == 1)
    pool.resize(2)
    seen += until(outcomes, lambda outcome: pool.live == 2)
    ids = [outcome.work.work_id for outcome in seen]
    assert len(ids) == len(set(ids))
    with pytest.raises(ValueError, match="can do nothing"):
        pool.resize(0)


def test_a_member_that_is_stopped_on_another_node_is_ended_there(nodes: Any, closing: Any) -> None:
    nodes.add_node(num_cpus=1, resources={"far": 1})
    pool = closing(Pool(worker(resources={"far": 1}), 1, TIMEOUTS))
    pool.wait_ready()
    birth = pool.births()[0]
    stopped = psutil.Process(birth.pid)
    kwargs = {"n": 4, "first": birth.incarnation}
    work = Work(work_id="w", method="freeze_once", kwargs=kwargs, timeout=2.0)
    # The node has room for one: its successor can only start when the stopped one is gone.
    assert [(outcome.value[0], outcome.attempts) for outcome in pool.run([work])] == [(8, 2)]
    assert not psutil.wait_procs([stopped], timeout=5)[1]


def test_roles_have_their_places_and_a_run_without_them_is_told_why(nodes: Any, closing: Any) -> None:
    far = [nodes.add_node(num_cpus=2) for _ in range(2)]
    judges = Bundles(role="evaluator", count=2, resources={"CPU": 1})
    engine = Bundles(role="rollout engine", count=1, resources={"CPU": 2})
    with reserve([engine, judges], "roles", 30.0) as places:
        pool = closing(Pool(Role(name="evaluator", actor_class=Worker, num_cpus=1, places=places), 2, TIMEOUTS))
        big = closing(Pool(Role(name="rollout engine", actor_class=Worker, num_cpus=2, places=places), 1, TIMEOUTS))
        pool.wait_ready()
        big.wait_ready()
        assert len({birth.node_id for birth in pool.births()}) == 2, "judges are spread"
        assert big.births()[0].node_id in {node.node_id for node in far}
        with pytest.raises(ActorError, match="CPU: 3 asked for, 1 free, the rest is in use"):
            with reserve([Bundles(role="evaluator", count=3, resources={"CPU": 1})], "roles", 1.0):
                pass
    with pytest.raises(ActorError, match=r"no place for 1 x rollout engine within 1 s: GPU: 1 asked for by each"):
        with reserve([Bundles(role="rollout engine", count=1, resources={"GPU": 1})], "roles", 1.0):
            pass
    with pytest.raises(ActorError, match="all on one node, the largest of 3 nodes has 2"):
        with reserve([engine, judges], "colocated", 1.0):
            pass
