"""Where a run's members sit: Ray placement groups by role, got within a deadline or not at all.

    bundles = (Bundles(role="rollout engine", count=2, resources={"CPU": 0.5, "GPU": 1}), ...)
    with reserve(bundles, "roles", seconds=120) as places:
        places.strategy("rollout engine", 0)        # for ray's scheduling_strategy

A run that cannot have all of its members must say so before the first of them has loaded a model, and two runs on one
cluster must not each hold half of what both need: a group is all or nothing.

- ``roles``: a group for each role. Engines and learner each as close together as it goes, judges as far apart: their
  timing takes turns on one machine.
- ``colocated``: one group on one node, for a machine whose GPU the roles share.
- ``free``: nothing is reserved; members go where Ray finds room.

A group outlives the loss of a node: Ray moves its lost places to another node as soon as one has room.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

from actors.errors import ActorError

Mode = Literal["free", "roles", "colocated"]

SPREAD = frozenset({"evaluator"})
"""Roles whose members are better off apart."""


@dataclass(frozen=True, kw_only=True)
class Bundles:
    """The places of one role."""

    role: str
    count: int
    resources: Mapping[str, float]
    """Of one member: {"CPU": 0.5, "GPU": 1}."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One machine of the cluster: all that it has, and what of it is free."""

    total: Mapping[str, float]
    free: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Reservation:
    """Groups that are ready, and which place in them is whose."""

    places: Mapping[tuple[str, int], tuple[Any, int]] = field(default_factory=dict)
    """(role, index) -> (placement group, bundle)."""

    def strategy(self, role: str, index: int) -> Any:
        """For ``scheduling_strategy``; Ray's default where nothing was reserved, as for members that came later."""
        place = self.places.get((role, index))
        if place is None:
            return "DEFAULT"
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        return PlacementGroupSchedulingStrategy(placement_group=place[0], placement_group_bundle_index=place[1])


@contextmanager
def reserve(bundles: Sequence[Bundles], mode: Mode, seconds: float) -> Iterator[Reservation]:
    """Holds the places while inside.

    Args:
        seconds: for all groups together.

    Raises:
        ActorError: they could not be had in time; its line names the resource that is missing, and where.
    """
    import time

    import ray
    from ray.util.placement_group import placement_group, remove_placement_group

    end = time.monotonic() + seconds
    groups: list[Any] = []
    places: dict[tuple[str, int], tuple[Any, int]] = {}
    try:
        for members, strategy in _groups(bundles, mode):
            shapes = [dict(part.resources) for part in members for _ in range(part.count)]
            owners = [(part.role, index) for part in members for index in range(part.count)]
            group = placement_group(shapes, strategy=strategy)
            groups.append(group)
            places |= {owner: (group, number) for number, owner in enumerate(owners)}
            if not group.wait(max(0.1, end - time.monotonic())):
                names = " and ".join(f"{part.count} x {part.role}" for part in members)
                why = missing(members, strategy, cluster_nodes(groups_free=True))
                raise ActorError(f"no place for {names} within {seconds:g} s: {why}")
        yield Reservation(places=places)
    finally:
        if ray.is_initialized():
            for group in groups:
                remove_placement_group(group)


def _groups(bundles: Sequence[Bundles], mode: Mode) -> list[tuple[list[Bundles], str]]:
    present = [part for part in bundles if part.count]
    if mode == "colocated":
        return [(present, "STRICT_PACK")]
    if mode == "roles":
        return [([part], "SPREAD" if part.role in SPREAD else "PACK") for part in present]
    return []


def missing(bundles: Sequence[Bundles], strategy: str, nodes: Sequence[Node]) -> str:
    """Which resource keeps these places from being had, in words that say what to change.

    In this order: one that no node has at all or enough of for a single member, one whose sum is too small, one that is
    there but in use, and at last pieces that are too small.
    """
    if strategy == "STRICT_PACK":
        together = {
            name: sum(part.count * part.resources.get(name, 0.0) for part in bundles) for name in _names(bundles)
        }
        asked, each = together, together
    else:
        asked = {name: sum(part.count * part.resources.get(name, 0.0) for part in bundles) for name in _names(bundles)}
        each = {name: max(part.resources.get(name, 0.0) for part in bundles) for name in asked}
    for name, amount in each.items():
        largest = max((node.total.get(name, 0.0) for node in nodes), default=0.0)
        if largest < amount:
            where = "all on one node" if strategy == "STRICT_PACK" else "by each member"
            return f"{name}: {amount:g} asked for {where}, the largest of {len(nodes)} nodes has {largest:g}"
    for name, amount in asked.items():
        total = sum(node.total.get(name, 0.0) for node in nodes)
        if total < amount:
            return f"{name}: {amount:g} asked for, all {len(nodes)} nodes together have {total:g}"
    for name, amount in asked.items():
        free = sum(node.free.get(name, 0.0) for node in nodes)
        if free < amount:
            return f"{name}: {amount:g} asked for, {free:g} free, the rest is in use"
    return f"{', '.join(asked)}: there would be enough, but free in pieces that are too small"


def _names(bundles: Iterable[Bundles]) -> list[str]:
    # The rarest first: a missing GPU says more than the missing CPU beside it.
    names = {name for part in bundles for name, amount in part.resources.items() if amount}
    return sorted(names, key=lambda name: (name == "CPU", name != "GPU", name))


def cluster_nodes(*, groups_free: bool = False) -> list[Node]:
    """The nodes that are alive.

    Args:
        groups_free: leave out what Ray makes up for placement groups ("CPU_group_0_...").
    """
    import ray
    from ray._private.state import available_resources_per_node

    free = available_resources_per_node()

    def clean(resources: Mapping[str, float]) -> dict[str, float]:
        return {name: amount for name, amount in resources.items() if not groups_free or "_group_" not in name}

    return [
        Node(total=clean(node["Resources"]), free=clean(free.get(node["NodeID"], {})))
        for node in ray.nodes()
        if node["Alive"]
    ]
