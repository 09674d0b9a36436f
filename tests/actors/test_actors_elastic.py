"""How many members a pool should have, and what is said when places are missing: no Ray here."""

from __future__ import annotations

import pytest

from actors.elastic import Bounds, dispensable, growth, leaving_order
from actors.member import Member
from actors.placement import Bundles, Node, missing
from actors.seats import Role, Seat


def seats(*phases: str, **kw: float) -> list[Seat]:
    return [Seat(index=i, phase=phase, **kw) for i, phase in enumerate(phases)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("phases", "waiting", "places", "added"),
    [
        (["ready"], 0, 9, 0),  # nothing to do
        (["ready"], 5, 0, 0),  # no room
        (["ready"], 5, 9, 1),  # doubles
        (["ready"] * 3, 5, 9, 3),
        (["ready"] * 3, 2, 9, 2),  # one a work
        (["ready"] * 3, 5, 2, 2),  # as many as have room
        (["ready"] * 3, 50, 50, 3),
        (["ready"] * 7, 50, 50, 1),  # not above most
        (["ready", "starting"], 5, 2, 1),  # who is starting has not taken its room yet
        (["ready", "starting"], 5, 1, 0),
    ],
)
def test_a_pool_grows_no_faster_than_work_room_and_its_bound_allow(
    phases: list[str], waiting: int, places: int, added: int
) -> None:
    assert growth(Bounds(least=1, most=8), seats(*phases), waiting, places) == added


def test_one_member_waits_for_a_place_where_nodes_are_started_on_demand() -> None:
    asking = Bounds(least=1, most=8, asks=True)
    assert growth(asking, seats("ready", "ready"), waiting=5, places=0) == 1
    assert growth(asking, seats("ready", "starting"), waiting=5, places=0) == 0
    assert growth(asking, seats("ready"), waiting=0, places=0) == 0


def test_those_go_first_who_cost_least() -> None:
    found = leaving_order(seats("ready", "ready", "starting", "empty"), busy={1})
    assert [seat.index for seat in found] == [3, 2, 0, 1]


def test_only_guests_that_stood_idle_or_found_no_place_are_dispensable() -> None:
    bounds = Bounds(least=1, most=8, idle_seconds=10, unplaced_seconds=5)
    idle = seats("ready", "ready", "ready")
    assert [s.index for s in dispensable(bounds, idle, {2}, now=11.0)] == [1, 0]
    assert dispensable(bounds, idle, {2}, now=9.0) == []
    assert [s.index for s in dispensable(Bounds(least=2, most=8, idle_seconds=10), idle, {2}, now=11.0)] == [1]
    unplaced = seats("ready", "starting", "starting")
    unplaced[1].placed = True
    assert [s.index for s in dispensable(bounds, unplaced, {0}, now=6.0)] == [2]


def test_what_a_member_takes_is_all_of_it() -> None:
    role = Role(name="x", actor_class=Member, num_cpus=1, num_gpus=0.5, resources={"disk": 2})
    assert role.asked == {"CPU": 1, "GPU": 0.5, "disk": 2}


def node(cpus: float, free: float | None = None, **more: float) -> Node:
    return Node(total={"CPU": cpus} | more, free={"CPU": cpus if free is None else free} | more)


@pytest.mark.parametrize(
    ("bundles", "strategy", "nodes", "said"),
    [
        (
            [Bundles(role="rollout engine", count=2, resources={"CPU": 1, "GPU": 1})],
            "PACK",
            [node(8)],
            "GPU: 1 asked for by each member, the largest of 1 nodes has 0",
        ),
        (
            [Bundles(role="evaluator", count=6, resources={"CPU": 1})],
            "SPREAD",
            [node(2), node(2)],
            "CPU: 6 asked for, all 2 nodes together have 4",
        ),
        (
            [Bundles(role="evaluator", count=4, resources={"CPU": 1})],
            "SPREAD",
            [node(4, free=1), node(2)],
            "CPU: 4 asked for, 3 free, the rest is in use",
        ),
        (
            [
                Bundles(role="rollout engine", count=1, resources={"CPU": 2}),
                Bundles(role="learner", count=1, resources={"CPU": 1}),
            ],
            "STRICT_PACK",
            [node(2), node(2)],
            "CPU: 3 asked for all on one node, the largest of 2 nodes has 2",
        ),
        (
            [Bundles(role="evaluator", count=2, resources={"CPU": 2})],
            "SPREAD",
            [node(3), node(1)],
            "CPU: there would be enough, but free in pieces that are too small",
        ),
    ],
)
def test_the_missing_resource_is_named(bundles: list[Bundles], strategy: str, nodes: list[Node], said: str) -> None:
    assert missing(bundles, strategy, nodes).startswith(said)
