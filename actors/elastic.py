"""How large a pool should be: it grows into free room while work waits, and gives up what stands idle.

A seat above ``least`` is a guest: it is taken when the cluster has room for it, and left without a fuss when its node
goes, when nothing is left for it to do, or when the room it waits for does not come. So a new node is used at the next
look (``LOOK_SECONDS``) and a lost one costs the work that was under way on it.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from actors.seats import Role, Seat

LOOK_SECONDS = 2.0
"""Between two looks at what is free."""


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Between how many and how many members a pool has."""

    least: int
    most: int
    idle_seconds: float = 60.0
    """A guest that had nothing to do for so long, while no work waited, is let go."""
    unplaced_seconds: float = 20.0
    """A guest that has found no room for so long is withdrawn; the next look tries again."""
    asks: bool = False
    """While work waits and there is no room, one guest waits for a place: what makes Ray's autoscaler start a node."""

    @property
    def elastic(self) -> bool:
        return self.most > self.least


def free_places(role: Role) -> int:
    """How many more members the cluster could take by the sum of what its nodes have free.

    A sum can be in pieces that are each too small; a member that finds no place is withdrawn again.
    """
    import ray

    free = ray.available_resources()
    # Half a millionth: Ray counts in ten-thousandths, and 0.5 + 0.5 must be two halves.
    return min((int(free.get(name, 0.0) / amount + 5e-7) for name, amount in role.asked.items() if amount), default=0)


def growth(bounds: Bounds, seats: Sequence[Seat], waiting: int, places: int) -> int:
    """Members to add: at most doubling, at most one for each waiting work, never more than there is room for.

    Args:
        waiting: works that no member has.
        places: as of ``free_places``; those that are starting may not have taken theirs yet.
    """
    wanted = [seat for seat in seats if seat.wanted]
    starting = sum(seat.phase == "starting" for seat in wanted)
    if bounds.asks and not starting:
        places = max(1, places)
    return max(0, min(places - starting, bounds.most - len(wanted), waiting, max(1, len(wanted))))


def leaving_order(seats: Sequence[Seat], busy: set[int]) -> list[Seat]:
    """Wanted seats, those first that can go at the least cost: empty, starting, idle, and then who works.

    Args:
        busy: indices of the seats whose members have work.
    """
    cost = {"empty": 0, "starting": 1, "ready": 2}
    wanted = [seat for seat in seats if seat.wanted]
    return sorted(wanted, key=lambda seat: (cost[seat.phase] + (seat.index in busy), -seat.index))


def dispensable(bounds: Bounds, seats: Sequence[Seat], busy: set[int], now: float | None = None) -> list[Seat]:
    """Guests that have been idle, or without a place, for too long."""
    now = time.monotonic() if now is None else now
    spare = sum(seat.wanted for seat in seats) - bounds.least
    found = []
    for seat in leaving_order(seats, busy):
        limit = {"starting": bounds.unplaced_seconds, "ready": bounds.idle_seconds, "empty": 0.0}[seat.phase]
        # Who has a process is not looking for a place any more; how long a start may take is another deadline.
        settled = seat.phase == "starting" and seat.placed
        if seat.index not in busy and not settled and now - seat.since > limit:
            found.append(seat)
    return found[: max(0, spare)]


class Sizing:
    """A pool's bounds, and when it looked last."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._next_look = 0.0

    def due(self) -> bool:
        return self.bounds.elastic and time.monotonic() >= self._next_look

    def pause(self, seconds: float) -> None:
        """No look before that."""
        self._next_look = time.monotonic() + seconds

    def rebase(self, size: int) -> None:
        """Another size by the caller's word; an elastic pool may still grow from there."""
        most = max(size, self.bounds.most) if self.bounds.elastic else size
        self.bounds = replace(self.bounds, least=size, most=most)

    def look(self, role: Role, seats: Sequence[Seat], busy: set[int], waiting: int) -> int:
        """Marks the seats that shall be left, and says how many more shall be taken.

        Args:
            busy: indices of the seats whose members have work.
            waiting: works that no member has.
        """
        import ray

        self._next_look = time.monotonic() + LOOK_SECONDS
        arriving = {seat.arrival: seat for seat in seats if seat.phase == "starting" and not seat.placed}
        arrived = ray.wait(list(arriving), num_returns=len(arriving), timeout=0)[0] if arriving else []
        for reference in arrived:
            arriving[reference].placed = True
        for seat in dispensable(self.bounds, seats, busy):
            if seat.phase != "ready" or not waiting:
                seat.wanted = False
        if not waiting or sum(seat.wanted for seat in seats) >= self.bounds.most:
            return 0
        return growth(self.bounds, seats, waiting, free_places(role))
