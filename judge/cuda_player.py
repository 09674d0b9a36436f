"""A baseline or a candidate on the GPU: built, given slots of inputs, called in batches, its outputs copied out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from judge import wire
from judge.cuda_memory import Flusher, Mappings, Slots, Stores, copy_all, synchronize
from judge.memory import Array, byte_count
from judge.player import Player, check_kinds
from judge.process import ForeignFailure, Jailed
from judge.reference import Case, Setup
from judge.types import Status


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of calls as both clocks saw it."""

    seconds: float
    """By the judge's clock, until the last output was in the judge's own memory."""
    own_seconds: float
    """By events of the process's own; believed of a baseline, and of a candidate as far as the judge's clock agrees."""


class CudaPlayer(Player):
    """One jailed process that runs Model or ModelNew on the GPU."""

    def __init__(self, process: Jailed, deadline_seconds: tuple[float, float]) -> None:
        super().__init__(process, deadline_seconds)
        self._mappings = Mappings()
        self._slots: Slots | None = None
        self._own_slots: Slots | None = None
        self._like: Case | None = None
        self._own_stores: Stores | None = None
        self._replayed: list[list[int]] = []
        """Where in the judge's address space every replay leaves its outputs."""
        self.replays = False
        """Whether a batch is the replay of a CUDA graph."""

    def prepare(self, setup: Setup, case: Case, *, guarded: bool = False, strided: bool = False) -> None:
        """Build the model with the reference's parameters and map one slot for inputs like the case's; then stop."""
        self._own_slots = self._replaced(Slots(case.inputs, 1))
        self._own_stores = Stores(case.honest, 1)
        self.build(setup, case, self._own_slots, guarded=guarded, strided=strided)

    def build(self, setup: Setup, case: Case, slots: Slots, *, guarded: bool = False, strided: bool = False) -> None:
        """Build the model and map these slots, which the caller owns; then stop."""
        self._go()
        state = Slots(setup.arrays, 1)
        try:
            state.write([setup.arrays])
            synchronize()
            request = wire.Construct(
                arguments=setup.arguments,
                tensors=state.slots[0],
                names=setup.names,
                size=0,
                handle=state.handle,
                backward=setup.backward,
                guarded=guarded,
            )
            self._ask(request, "to construct its model")
        finally:
            state.close()
        self._slots, self._like = slots, case
        self.replays = False
        self._ask(
            wire.MapSlots(arguments=case.arguments, slots=tuple(slots.slots), handle=slots.handle, strided=strided),
            "to take its inputs",
        )
        self._halt()

    def allow(self, seconds: float) -> None:
        """A new deadline from now on, for a process that outlives one verdict."""
        self._process.deadline = time.monotonic() + seconds
        self._load_seconds = self._call_seconds = seconds

    def capture(self) -> None:
        """Have batches of all slots replayed as one graph from now on. Raises ForeignFailure when it cannot be."""
        assert self._slots is not None and self._like is not None
        self._go()
        captured = self._ask(wire.Capture(), "to capture a CUDA graph")
        assert isinstance(captured, wire.Captured)
        if len(captured.outputs) != len(self._slots.slots):
            raise ForeignFailure(Status.REJECTED, "it captured another number of calls than asked")
        for specs in captured.outputs:
            check_kinds(specs, self._like)
        self._halt()
        self._replayed = [self._addresses(specs) for specs in captured.outputs]
        self.replays = True

    def call(self, case: Case) -> float:
        """One call; seconds by the judge's clock. Raises ForeignFailure."""
        assert self._own_stores is not None
        batch = self.call_batch([case], self._own_stores)
        self.check_inputs([case])
        return batch.seconds

    def outputs(self) -> tuple[Array, ...]:
        assert self._own_stores is not None
        return self._own_stores.outputs(0)

    def call_batch(
        self,
        cases: Sequence[Case],
        stores: Stores,
        flusher: Flusher | None = None,
        before: Callable[[], None] | None = None,
    ) -> Batch:
        """One call for each case, on slots that are filled now, with the caches emptied; outputs go to ``stores``.

        ``before`` is called when everything is written and the process still stands. A process that answers before its
        kernels have ended gains nothing: the copies wait for them, or find what is not there yet. Raises
        ForeignFailure.
        """
        assert self._slots is not None
        self._slots.write([case.inputs for case in cases])
        plan = stores.plan(self._replayed) if self.replays else None
        if flusher is not None:
            flusher.flush()
        synchronize()
        if before is not None:
            before()
        request = wire.CallBatch(nonce=secrets.randbits(62), count=len(cases), replay=self.replays)
        began, reply = self._process.timed_batch(request, self._call_seconds)
        if plan is None:
            if len(reply.outputs) != len(cases):
                raise ForeignFailure(Status.REJECTED, "it answered a batch with another number of calls")
            for specs, case in zip(reply.outputs, cases, strict=True):
                check_kinds(specs, case)
            plan = stores.plan([self._addresses(specs) for specs in reply.outputs])
        copy_all(plan)
        synchronize()
        seconds = time.perf_counter() - began
        own = reply.seconds if 0 <= reply.seconds < seconds else 0.0
        return Batch(seconds=seconds, own_seconds=own)

    def check_inputs(self, cases: Sequence[Case]) -> None:
        """That the slots still hold what they were given. Raises ForeignFailure."""
        assert self._slots is not None
        if not self._slots.hold([case.inputs for case in cases]):
            raise ForeignFailure(Status.INCORRECT, "forward changes its inputs")

    def _addresses(self, specs: Sequence[wire.TensorSpec]) -> list[int]:
        try:
            return [self._mappings.address(spec) if byte_count(spec) else 0 for spec in specs]
        except OSError as error:
            raise ForeignFailure(
                Status.RUNTIME_ERROR, f"an output does not lie where it was said to: {error.strerror}"
            ) from None

    def _go(self) -> None:
        if self._stopped:
            self._process.resume()
            self._stopped = False

    def _halt(self) -> None:
        self._process.stop()
        self._stopped = True

    def _replaced(self, slots: Slots) -> Slots:
        if self._own_slots is not None:
            self._own_slots.close()
        return slots

    def close(self) -> None:
        self._mappings.close()
        super().close()
        if self._own_slots is not None:
            self._own_slots.close()
            self._own_slots = None
