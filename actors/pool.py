"""A pool of equal actors that survives the death of any of them.

    pool = Pool(Role(name="evaluator", actor_class=EvaluatorActor, start={"settings": s}), 2, timeouts)
    for outcome in pool.run(works):     # as they complete; each work exactly once
        ...
    pool.close()

It stands on RLlib's FaultTolerantActorManager, which makes the calls, fetches what is ready and turns the death of an
actor into a value, and adds what that lacks:

- a deadline for each call. A wedged actor may still answer its ping: past the deadline it is killed and replaced;
- requeue of the work that was with a lost actor, at most ``max_retries`` times, then a Failure as the result;
- nothing dropped silently: a call that the manager did not accept goes back into the queue;
- nothing taken twice: results are matched to calls by an id, and calls to works;
- a state (the current weights) that each member must confirm before it is given work, again after a replacement;
- a size that follows the cluster (actors/elastic.py), or the caller's word (``resize``).

One thread uses a pool at a time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from actors.calling import new_actor, seat_for, send
from actors.death import cause_of, kill, wait_gone
from actors.elastic import Bounds, Sizing, leaving_order
from actors.errors import ActorError
from actors.gauges import PoolMetrics
from actors.ledger import Call, Ledger, Outcome, Task, Work
from actors.member import Birth
from actors.seats import Role, Seat, State
from actors.settings import Timeouts
from actors.types import Failure
from warpsmith import WarpsmithError

POLL_SECONDS = 0.02
"""The manager's fetch waits for all calls or for its timeout; this is how late a single result is noticed."""
FAILED_STARTS = 3
"""So many in a row and a seat stays empty."""
GOODBYE_SECONDS = 2.0
"""For the last words of a member that is let go."""
PAUSE_SECONDS = 30.0
"""After a guest's failed start: no more are asked in meanwhile."""


class Pool:
    """See the module's docstring. Actors start at once; the first use waits for them."""

    def __init__(
        self,
        role: Role,
        size: int,
        timeouts: Timeouts,
        *,
        in_flight: int = 1,
        max_retries: int = 2,
        bounds: Bounds | None = None,
        on_event: Callable[[str], None] | None = None,
    ) -> None:
        """Begins to start ``size`` actors.

        Args:
            bounds: within which the size follows the cluster; ``size`` for good if left out.
            in_flight: calls that one member may hold; more than one hides the trip, and a loss then takes them all.
            max_retries: how often a work is handed out again after its actor was lost.
            on_event: is given one line for each lost, replaced or given-up member.
        """
        from ray.rllib.utils.actor_manager import FaultTolerantActorManager

        # It prints a stack of lines for each death, which on_event says in one.
        logging.getLogger("ray.rllib.utils.actor_manager").setLevel(logging.CRITICAL)
        self.role = role
        self._timeouts = timeouts
        self._in_flight = in_flight
        self._max_retries = max_retries
        self._say = on_event or (lambda line: None)
        self._manager = FaultTolerantActorManager(max_remote_requests_in_flight_per_actor=1)  # of one tag: see _call
        self._ledger = Ledger()
        self._state: State | None = None
        self._outcomes: list[Outcome] = []
        self._incarnations = 0
        self._broadcasts = 0
        self._last_turn, self._grace = time.monotonic(), 0.0
        self._was_ready = False
        self._refusal: Exception | None = None
        self._closed = False
        self._metrics = PoolMetrics(role.name)
        self._sizing = Sizing(bounds or Bounds(least=size, most=size))
        self._seats = [Seat(index=index) for index in range(size)]
        for seat in self._seats:
            self._fill(seat)

    # -- what callers use ---------------------------------------------------------------------------------------

    def submit(self, work: Work) -> None:
        """Queues a work; ``collect`` gives its outcome.

        Raises:
            ValueError: its id is in use.
            ActorError: the pool is closed, or no member is left.
        """
        self._check_anyone()
        self._ledger.add(work)

    def collect(self, seconds: float) -> list[Outcome]:
        """Outcomes that are there, waiting at most so long for the first.

        Raises:
            ActorError: no member is left and none could be got.
            WarpsmithError: the members cannot start, for a reason that is the user's to mend.
        """
        end = time.monotonic() + seconds
        while not self._outcomes and self._ledger.unfinished:
            self._turn()
            if time.monotonic() >= end:
                break
        taken, self._outcomes = self._outcomes, []
        return taken

    def forget(self, work_ids: set[Hashable]) -> None:
        """Nobody waits for these any more: the queued are dropped, results of those in flight ignored."""
        self._ledger.forget(work_ids)
        self._outcomes = [outcome for outcome in self._outcomes if outcome.work.work_id not in work_ids]

    def run(self, works: Iterable[Work]) -> Iterator[Outcome]:
        """Outcomes of the works as they complete, each exactly once. Works are drawn as members become free.

        Leaving the iteration early gives up what is unfinished. Raises as ``collect``.
        """
        source = iter(works)
        mine: set[Hashable] = set()
        drawn_all = False
        try:
            while True:
                while not drawn_all and len(mine) < self._in_flight * self.size + 1:
                    work = next(source, None)
                    if work is None:
                        drawn_all = True
                    else:
                        self.submit(work)
                        mine.add(work.work_id)
                if not mine:
                    return
                for outcome in self.collect(seconds=1.0):
                    if outcome.work.work_id in mine:
                        mine.discard(outcome.work.work_id)
                        yield outcome
        finally:
            self.forget(mine)

    def wait_ready(self) -> None:
        """Until every seat is taken by a member that has the current state, or is given up. Raises as ``collect``."""
        self._check_anyone()
        while any(self._is_awaited(seat) for seat in self._seats):
            self._turn()

    def resize(self, size: int) -> None:
        """From now on so many members. Those that are too many finish what they have; new ones start at once.

        Raises:
            ValueError: fewer than one.
        """
        if size < 1:
            raise ValueError(f"a pool of {size} members can do nothing")
        self._sizing.rebase(size)
        for seat in leaving_order(self._seats, self._busy())[: max(0, self.size - size)]:
            seat.wanted = False
        self._grow(size - self.size, guests=False)

    def set_state(self, state: State) -> None:
        """Tells every member, now and after each replacement, before it is given more work. Raises as ``collect``."""
        before, self._state = self._state, state
        try:
            self.wait_ready()
        except WarpsmithError:
            self._state = before  # members that took the new one are brought back before they work
            raise

    def broadcast(self, method: str, kwargs: dict[str, Any], timeout: float) -> list[Any]:
        """The method's value from every member, in the order of their seats; a lost one is asked again.

        Raises as ``collect``.
        """
        self.wait_ready()
        self._broadcasts += 1
        works = [
            Work(
                work_id=("broadcast", self._broadcasts, s.index),
                method=method,
                kwargs=kwargs,
                timeout=timeout,
                seat=s.index,
            )
            for s in self._seats
            if s.phase == "ready" or (s.phase == "starting" and not s.guest)
        ]
        outcomes = sorted(self.run(works), key=lambda outcome: outcome.work.seat or 0)
        return [outcome.value for outcome in outcomes]

    @property
    def _bounds(self) -> Bounds:
        return self._sizing.bounds

    @property
    def size(self) -> int:
        """Members that the pool wants at the moment."""
        return sum(seat.wanted for seat in self._seats)

    @property
    def live(self) -> int:
        """Members that are ready for work."""
        return sum(seat.phase == "ready" for seat in self._seats)

    def births(self) -> list[Birth]:
        """Who sits where, of the members that are ready."""
        return [seat.birth for seat in self._seats if seat.phase == "ready" and seat.birth]

    def close(self) -> None:
        """Ends all members within ``timeouts.shutdown``; safe to call twice and after Ray itself has gone."""
        import ray

        if self._closed:
            return
        self._closed = True
        seats = [seat for seat in self._seats if seat.handle is not None]
        if not ray.is_initialized():
            return
        end = time.monotonic() + self._timeouts.shutdown
        idle = [s for s in seats if s.phase == "ready" and not self._ledger.calls_of(s.incarnation)]
        goodbyes = [seat.handle.close.remote() for seat in idle]
        if goodbyes:
            ray.wait(goodbyes, num_returns=len(goodbyes), timeout=self._timeouts.shutdown / 2)
        for seat in seats:
            kill(seat.handle, seat.birth)
            seat.phase, seat.handle = "empty", None
        wait_gone([seat.birth for seat in seats if seat.birth], end)

    # -- one turn of the wheel ----------------------------------------------------------------------------------

    def _turn(self) -> None:
        """Fetch, watch, replace, re-sync, hand out."""
        self._check_anyone()
        lost: dict[int, str] = {}
        if self._ledger.in_flight:
            for result in self._manager.fetch_ready_async_reqs(timeout_seconds=POLL_SECONDS):
                call = self._ledger.get(result.tag)
                if call is None:
                    continue
                # The calls of a lost member stay in the ledger until _replace has requeued their work.
                reason = self._take(call, result.get()) if result.ok else cause_of(result.get())
                if reason:
                    lost.setdefault(call.incarnation, reason)
        else:
            time.sleep(POLL_SECONDS)
        self._check_open()  # another thread may have closed the pool meanwhile: whom it killed is not to be replaced
        for call in self._ledger.overdue(self._clock()):
            lost.setdefault(call.incarnation, self._overdue(call))
        for seat in self._seats:
            if seat.incarnation in lost:
                self._replace(seat, lost[seat.incarnation])
        if self._refusal is not None:
            refusal, self._refusal = self._refusal, None
            raise refusal
        for seat in self._seats:
            if not seat.wanted:
                if seat.phase != "empty" and (seat.phase == "starting" or not self._ledger.load(seat.incarnation)):
                    self._dismiss(seat)
            elif seat.phase == "empty" and time.monotonic() >= seat.retry_at and self.live:
                seat.failed_starts = 0
                self._fill(seat)
            elif seat.phase == "ready" and not self._is_current(seat) and not self._ledger.load(seat.incarnation):
                self._bring_state(seat)
        self._hand_out()
        if self._metrics.due():
            waiting = len(self._ledger.queue)
            self._metrics.show(members=self.live, wanted=self.size, busy=self._ledger.in_flight, waiting=waiting)
        if self._sizing.due():
            self._follow_cluster()
        self._drop_hopeless()
        self._check_anyone()

    def _check_open(self) -> None:
        if self._closed:
            raise ActorError(f"the {self.role.name} pool is closed")

    def _check_anyone(self) -> None:
        self._check_open()
        if all(seat.phase == "empty" for seat in self._seats):
            raise ActorError(self._nobody())

    def _clock(self) -> float:
        """time.monotonic() for deadlines: results that came while nobody used the pool get time to be fetched."""
        now = time.monotonic()
        if now - self._last_turn > 1.0:
            self._grace = now + 2.0
        self._last_turn = now
        return now if now > self._grace else 0.0

    def _take(self, call: Call, value: Any) -> str:
        """Puts a returned value where it belongs; says why the member is lost, if it is."""
        seat, failure = self._seats[call.seat], value if isinstance(value, Failure) else None
        if failure is not None and failure.fatal:
            return failure.message
        if call.kind == "work":
            self._ledger.close(call.call_id)
            if call.task is not None:
                self._finish(call.task, value, seat.index)
            seat.failed_starts, seat.since = 0, time.monotonic()
        elif failure is not None:
            if failure.error is not None and (call.kind == "state" or not self._was_ready):
                # The same would happen in every member: what the configuration, or the caller, asks is impossible.
                self._ledger.close(call.call_id)
                if call.kind == "state" and call.state is not self._state:
                    return ""  # one member's refusal was enough: that state has been withdrawn
                self._refusal = failure.error
                if call.kind == "start":
                    self._give_up(seat, failure.message)
                return ""
            return f"{call.method} failed: {failure.kind}: {failure.message}"
        else:
            self._ledger.close(call.call_id)
            if call.kind == "start":
                seat.phase, seat.birth, self._was_ready = "ready", value, True
                seat.since = time.monotonic()
                if seat.guest or seat.fillings > 1:
                    self._say(
                        f"{self.role.name} {seat.index} is {'here' if seat.guest else 'back'} (process {value.pid})"
                    )
            else:
                seat.state_key, seat.failed_starts = call.state.key if call.state else None, 0
        return ""

    def _overdue(self, call: Call) -> str:
        reason = f"no answer to {call.method} within {call.timeout:g} s"
        return f"{reason}; {self.role.shortage()}" if call.kind == "start" else reason

    def _replace(self, seat: Seat, reason: str) -> None:
        calls = self._ledger.calls_of(seat.incarnation)
        for call in calls:
            self._ledger.close(call.call_id)
        kinds = {call.kind for call in calls}
        tasks = [call.task for call in calls if call.task is not None and self._ledger.is_open(call.task)]
        self._remove(seat, reason)
        self._metrics.count("lost")
        # Calls are served in order: the oldest was with the actor, those behind it had not begun.
        requeued = sum(self._lose(task, reason, charged=number == 0) for number, task in reversed([*enumerate(tasks)]))
        seat.failed_starts = seat.failed_starts + 1 if kinds & {"start", "state"} else 0
        pending = "start" in kinds and reason.startswith("no answer")
        if seat.failed_starts >= FAILED_STARTS or pending:
            self._give_up(seat, reason)
            return
        if not seat.wanted or (seat.guest and self.size > self._bounds.least):
            # Its node may be gone for good; the next look says whether there is room for another.
            seat.wanted = False
            if "start" in kinds:
                self._sizing.pause(PAUSE_SECONDS)
            self._say(f"{self.role.name} {seat.index} lost ({reason}): {requeued} work(s) requeued")
            return
        # Where nodes come and go, the others do not wait for a place for this one.
        seat.guest = seat.guest or (self._bounds.elastic and self.live > 0)
        self._say(f"{self.role.name} {seat.index} lost ({reason}): replaced, {requeued} work(s) requeued")
        self._fill(seat)

    def _remove(self, seat: Seat, reason: str) -> None:
        if seat.handle is not None:
            self._manager.remove_actor(seat.actor_id)
            kill(seat.handle, seat.birth)
        seat.phase, seat.handle, seat.last_failure = "empty", None, reason
        seat.arrival, seat.placed = None, False

    def _dismiss(self, seat: Seat) -> None:
        """Lets an idle member go; one that is starting has nothing to say goodbye to."""
        import ray

        if seat.phase == "ready":
            ray.wait([seat.handle.close.remote()], timeout=GOODBYE_SECONDS)
        for call in self._ledger.calls_of(seat.incarnation):
            self._ledger.close(call.call_id)
        self._remove(seat, "it was let go")

    # -- its size -----------------------------------------------------------------------------------------------

    def _busy(self) -> set[int]:
        """Indices of the seats whose members have work."""
        return {
            seat.index
            for seat in self._seats
            if any(call.kind == "work" for call in self._ledger.calls_of(seat.incarnation))
        }

    def _follow_cluster(self) -> None:
        waiting = len(self._ledger.queue)
        self._grow(self._sizing.look(self.role, self._seats, self._busy(), waiting), guests=True)

    def _grow(self, count: int, *, guests: bool) -> None:
        unused = [seat for seat in self._seats if not seat.wanted and seat.phase == "empty"]
        for _ in range(count):
            if unused:
                seat = unused.pop(0)
            else:
                seat = Seat(index=len(self._seats))
                self._seats.append(seat)
            seat.wanted, seat.guest, seat.failed_starts = True, guests, 0
            self._fill(seat)

    def _is_awaited(self, seat: Seat) -> bool:
        """Whether the pool is not ready without it: a guest only as long as there is nobody else."""
        if seat.phase == "ready":
            return not self._is_current(seat)
        return seat.phase == "starting" and seat.wanted and (not seat.guest or not self.live)

    def _give_up(self, seat: Seat, reason: str) -> None:
        self._remove(seat, reason)
        seat.retry_at = time.monotonic() + self._timeouts.actor_start
        self._say(f"{self.role.name} {seat.index} given up: {reason}")

    def _lose(self, task: Task, reason: str, *, charged: bool) -> bool:
        """Requeues a work, or ends it when it was lost too often; says whether it was requeued."""
        if charged:
            task.attempts += 1
            if task.attempts > self._max_retries:
                message = f"{task.work.method} lost {task.attempts} {self.role.name}s, the last time: {reason}"
                self._finish(task, Failure(kind="Lost", message=message), None)
                return False
        self._ledger.requeue(task)
        self._metrics.count("requeued")
        return True

    def _finish(self, task: Task, value: Any, seat: int | None) -> None:
        if self._ledger.is_open(task) and self._ledger.finish(task):
            self._metrics.count("results")
            attempts = task.attempts + (seat is not None)
            self._outcomes.append(Outcome(work=task.work, value=value, seat=seat, attempts=attempts))

    def _fill(self, seat: Seat) -> None:
        role = self.role
        seat.incarnation, self._incarnations = self._incarnations, self._incarnations + 1
        seat.fillings += 1
        seat.handle = new_actor(role, seat)
        self._manager.add_actors([seat.handle])
        seat.actor_id = self._manager.actor_ids()[-1]
        seat.phase, seat.birth, seat.state_key, seat.affinity = "starting", None, None, None
        seat.since, seat.placed = time.monotonic(), False
        seat.arrival = seat.handle.ping.remote() if self._bounds.elastic else None
        self._call(seat, "start", "start", role.start, self._timeouts.actor_start)

    def _bring_state(self, seat: Seat) -> None:
        state = self._state
        assert state is not None
        self._call(seat, "state", state.method, state.kwargs, state.timeout, state=state)

    def _is_current(self, seat: Seat) -> bool:
        return self._state is None or seat.state_key == self._state.key

    def _hand_out(self) -> None:
        waiting = [task for task in self._ledger.queue if self._ledger.is_open(task)]
        order = {id(task): number for number, task in enumerate(waiting)}
        left: list[Task] = []
        while waiting:
            task = waiting.pop(self._next_of(waiting))
            seat = seat_for(task.work, self._seats, self._ledger, self._in_flight, self._is_current)
            work = task.work
            if seat is None or not self._call(seat, "work", work.method, work.kwargs, work.timeout, task=task):
                left.append(task)
            else:
                seat.affinity = work.affinity
        self._ledger.queue = type(self._ledger.queue)(sorted(left, key=lambda task: order[id(task)]))

    def _next_of(self, waiting: list[Task]) -> int:
        """Which of them to hand out: the first, unless affinities say otherwise. Then one whose member is free for it,
        else one that no member holds yet."""
        if all(task.work.affinity is None for task in waiting):
            return 0
        holders = {seat.affinity: seat for seat in self._seats if seat.phase == "ready" and seat.affinity is not None}
        ranks = []
        for task in waiting:
            holder = holders.get(task.work.affinity)
            free = holder is not None and not self._ledger.load(holder.incarnation)
            ranks.append(0 if free else 1 if holder is None else 2)
        return ranks.index(min(ranks))

    def _drop_hopeless(self) -> None:
        """Ends works that only an empty seat may do."""
        for task in list(self._ledger.queue):
            pinned = task.work.seat
            if pinned is not None and self._seats[pinned].phase == "empty":
                self._ledger.queue.remove(task)
                message = f"{self.role.name} {pinned} is gone: {self._seats[pinned].last_failure}"
                self._finish(task, Failure(kind="Lost", message=message), None)

    def _call(self, seat: Seat, *call: Any, **more: Any) -> bool:
        return send(self._manager, self._ledger, seat, *call, **more)

    def _nobody(self) -> str:
        reason = next((seat.last_failure for seat in self._seats if seat.last_failure), "none was started")
        where = f"all {self.size} {self.role.name} actors are gone and none could be started"
        hint = "" if "asked for" in reason else f"; {self.role.shortage()}"
        return f"{where}; the last: {reason}{hint}"
