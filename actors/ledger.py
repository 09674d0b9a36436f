"""The pool's book: which call is with which incarnation of which actor, until when, and for which work."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from actors.seats import State


@dataclass(frozen=True, kw_only=True)
class Work:
    """One call to be made on some member.

    Example: ``Work(work_id="j1", method="judge", kwargs={"task": task, "candidate": c}, timeout=240.0)``
    """

    work_id: Hashable
    """Unique among the unfinished works of a pool."""
    method: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    timeout: float
    """Seconds from the moment it is handed to an actor."""
    seat: int | None = None
    """Only this member may do it; None for any."""
    avoid: frozenset[int] = frozenset()
    """Seats that had their try; used again only when there is no other."""
    affinity: Hashable = None
    """Works of one affinity go to one member while there is other work for the others: it has kept what they share."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A finished work."""

    work: Work
    value: Any
    """What the method returned, or a Failure."""
    seat: int | None
    """Who did it; None when it was lost."""
    attempts: int


@dataclass(kw_only=True)
class Task:
    """A work that is not finished, and how often it was lost."""

    work: Work
    attempts: int = 0


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call in flight."""

    call_id: str
    """The manager's tag, never used twice."""
    kind: Literal["start", "state", "work"]
    seat: int
    incarnation: int
    deadline: float
    """By time.monotonic()."""
    timeout: float
    method: str
    task: Task | None = None
    state: State | None = None
    """Of a state call: what it brings."""


class Ledger:
    """Unfinished works in order, and calls in flight by id."""

    def __init__(self) -> None:
        self.queue: deque[Task] = deque()
        self._tasks: dict[Hashable, Task] = {}
        self._calls: dict[str, Call] = {}
        self._by_member: dict[int, dict[str, Call]] = {}
        self._issued = 0

    def add(self, work: Work) -> None:
        """Queues a work. Raises ValueError when its id is in use."""
        if work.work_id in self._tasks:
            raise ValueError(f"work {work.work_id!r} is in the pool already: its result would be taken twice")
        task = Task(work=work)
        self._tasks[work.work_id] = task
        self.queue.append(task)

    def next_call_id(self) -> str:
        self._issued += 1
        return f"call-{self._issued}"

    def open(self, call: Call) -> None:
        self._calls[call.call_id] = call
        self._by_member.setdefault(call.incarnation, {})[call.call_id] = call

    def get(self, call_id: str) -> Call | None:
        """The call in flight; None when it was given up."""
        return self._calls.get(call_id)

    def close(self, call_id: str) -> None:
        call = self._calls.pop(call_id, None)
        if call is not None:
            theirs = self._by_member[call.incarnation]
            del theirs[call_id]
            if not theirs:
                del self._by_member[call.incarnation]

    def finish(self, task: Task) -> bool:
        """Crosses the work out. False when it was finished, or forgotten, before."""
        return self._tasks.pop(task.work.work_id, None) is not None

    def requeue(self, task: Task) -> None:
        # To the front: what was lost has waited longest.
        self.queue.appendleft(task)

    def forget(self, work_ids: set[Hashable]) -> None:
        """Nobody waits for these any more: queued ones are dropped, results of those in flight ignored."""
        for work_id in work_ids:
            self._tasks.pop(work_id, None)
        self.queue = deque(task for task in self.queue if task.work.work_id in self._tasks)

    def is_open(self, task: Task) -> bool:
        return self._tasks.get(task.work.work_id) is task

    def calls_of(self, incarnation: int) -> list[Call]:
        """Oldest first."""
        return list(self._by_member.get(incarnation, {}).values())

    def load(self, incarnation: int) -> int:
        """How many calls a member has."""
        return len(self._by_member.get(incarnation, ()))

    def overdue(self, now: float) -> list[Call]:
        return [call for call in self._calls.values() if now > call.deadline]

    @property
    def unfinished(self) -> int:
        return len(self._tasks)

    @property
    def in_flight(self) -> int:
        return len(self._calls)
