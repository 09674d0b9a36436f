"""How a pool makes its members and calls them: thin layers over Ray and RLlib's manager."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from actors.ledger import Call, Ledger, Task, Work
from actors.seats import Role, Seat, State


def new_actor(role: Role, seat: Seat) -> Any:
    """A handle of the actor for a seat, which Ray places when there is room; it has not started."""
    import ray

    options: dict[str, Any] = {
        "num_cpus": role.num_cpus,
        "num_gpus": role.num_gpus,
        "resources": role.resources,
        "scheduling_strategy": role.places.strategy(role.name, seat.index),
        "max_restarts": 0,
    }
    if role.env:
        options["runtime_env"] = {"env_vars": role.env}
    return ray.remote(role.actor_class).options(**options).remote(seat.incarnation)


def send(
    manager: Any,
    ledger: Ledger,
    seat: Seat,
    kind: Literal["start", "state", "work"],
    method: str,
    kwargs: dict[str, Any],
    timeout: float,
    *,
    task: Task | None = None,
    state: State | None = None,
) -> bool:
    """Sends a call and books it; False when the manager did not take it: it drops calls to unhealthy or busy actors."""
    call_id = ledger.next_call_id()
    accepted = manager.foreach_actor_async(method, tag=call_id, kwargs=kwargs, remote_actor_ids=[seat.actor_id])
    if accepted != 1:
        return False
    ledger.open(
        Call(
            call_id=call_id,
            kind=kind,
            seat=seat.index,
            incarnation=seat.incarnation,
            deadline=time.monotonic() + timeout,
            timeout=timeout,
            method=method,
            task=task,
            state=state,
        )
    )
    return True


def seat_for(
    work: Work, seats: Sequence[Seat], ledger: Ledger, in_flight: int, is_current: Callable[[Seat], bool]
) -> Seat | None:
    """The least busy member that may do a work now; one that it shall avoid only when there is no other."""
    filled = [seat for seat in seats if seat.phase != "empty"]
    allowed = [s for s in filled if s.index == work.seat or work.seat is None]
    allowed = [s for s in allowed if s.index not in work.avoid] or allowed
    free = [
        (load, s.affinity != work.affinity, s.index, s)
        for s in allowed
        if s.phase == "ready" and s.wanted and is_current(s) and (load := ledger.load(s.incarnation)) < in_flight
    ]
    return min(free, key=lambda one: one[:3])[3] if free else None
