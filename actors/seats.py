"""What a pool's members are, what they must be told, and the places they sit in."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from actors.member import Birth, Member
from actors.placement import Reservation


@dataclass(frozen=True, kw_only=True)
class Role:
    """What the members of a pool are."""

    name: str
    """For messages: "evaluator"."""
    actor_class: type[Member]
    start: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the member's ``start``."""
    num_cpus: float = 0.5
    """Half: on a small machine the roles take turns, and all of them must fit on two CPUs."""
    num_gpus: float = 0
    resources: dict[str, float] = field(default_factory=dict)
    """Of Ray's custom kind, such as those that mark a kind of node."""
    places: Reservation = field(default_factory=Reservation)
    """Where members with a reserved place sit."""
    env: dict[str, str] = field(default_factory=dict)
    """Environment variables of the actor's process."""

    @property
    def asked(self) -> dict[str, float]:
        """All that one member takes."""
        return {"CPU": self.num_cpus} | ({"GPU": self.num_gpus} if self.num_gpus else {}) | self.resources

    def shortage(self) -> str:
        """What one member asks for, and what the cluster has of it."""
        import ray

        free, total = ray.available_resources(), ray.cluster_resources()
        return "; ".join(
            f"asked for {amount:g} {name}, {free.get(name, 0):g} of {total.get(name, 0):g} free"
            for name, amount in self.asked.items()
        )


@dataclass(frozen=True, kw_only=True)
class State:
    """What every member must be told before it works, such as the current weights."""

    key: Hashable
    method: str
    kwargs: dict[str, Any]
    timeout: float


@dataclass(kw_only=True)
class Seat:
    """A place in the pool; its occupant changes, its index does not."""

    index: int
    incarnation: int = -1
    actor_id: int = -1
    handle: Any = None
    phase: Literal["starting", "ready", "empty"] = "empty"
    state_key: Hashable = None
    birth: Birth | None = None
    affinity: Hashable = None
    """Of the last work it was given."""
    fillings: int = 0
    failed_starts: int = 0
    """In a row; members that started but could not take the state count too."""
    retry_at: float = 0.0
    last_failure: str = ""
    wanted: bool = True
    """False: its member finishes what it has and goes."""
    guest: bool = False
    """Nobody waits for its member to start: the pool works without it."""
    since: float = 0.0
    """When its member last had work, or began to start; by time.monotonic()."""
    arrival: Any = None
    """Reference to the answer that a member gives as soon as it has a process, long before it has started."""
    placed: bool = False
    """It has a process."""
