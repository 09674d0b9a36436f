"""A baseline or a candidate on the GPU: built, given slots of inputs, called in batches, its outputs copied out."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass

from judge import wire
from judge.cuda_memory import Flusher, Mappings, Slots, copy_out, synchronize
from judge.memory import Array
from judge.player import Player, check_kinds
from judge.process import ForeignFailure, Jailed
from judge.reference import Case, Setup
from judge.types import Status


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One batch of calls as both clocks saw it."""

    seconds: float
    """By the judge's clock, until the last output was in the judge's own memory, less what copying it takes."""
    own_seconds: float
    """By events of the process's own; only to be believed of a baseline, and of a candidate when it is the larger."""
    outputs: tuple[tuple[Array, ...], ...]
    """Of each call."""


class CudaPlayer(Player):
    """One jailed process that runs Model or ModelNew on the GPU."""

    def __init__(self, process: Jailed, deadline_seconds: tuple[float, float]) -> None:
        super().__init__(process, deadline_seconds)
        self._mappings = Mappings()
        self._slots: Slots | None = None
        self._own_slots: Slots | None = None
        self._filled: list[tuple[Array, ...]] = []
        self._outputs_of_batch: tuple[tuple[Array, ...], ...] = ()
        self._replayed: tuple[tuple[wire.TensorSpec, ...], ...] = ()
        self.replays = False
        """Whether a batch is the replay of a CUDA graph."""

    def prepare(self, setup: Setup, case: Case) -> None:
        """Build the model with the reference's parameters and map one slot for inputs like the case's; then stop."""
        self._own_slots = self._replaced(Slots(case.inputs, 1))
        self.build(setup, case, self._own_slots)

    def build(self, setup: Setup, case: Case, slots: Slots) -> None:
        """Build the model and map these slots, which the caller owns; then stop."""
        self._go()
        state = Slots(setup.arrays, 1)
        try:
            state.write(0, setup.arrays)
            synchronize()
            request = wire.Construct(
                arguments=setup.arguments, tensors=state.slots[0], names=setup.names, size=0, handle=state.handle
            )
            self._ask(request, "to construct its model")
        finally:
            state.close()
        self._slots = slots
        self.replays = False
        self._ask(
            wire.MapSlots(arguments=case.arguments, slots=tuple(slots.slots), handle=slots.handle), "to take its inputs"
        )
        self._halt()

    def allow(self, seconds: float) -> None:
        """A new deadline from now on, for a process that outlives one verdict."""
        self._process.deadline = time.monotonic() + seconds
        self._load_seconds = self._call_seconds = seconds

    def capture(self) -> None:
        """Have batches of all slots replayed as one graph from now on. Raises ForeignFailure when it cannot be."""
        self._go()
        captured = self._ask(wire.Capture(), "to capture a CUDA graph")
        assert isinstance(captured, wire.Captured)
        self._halt()
        self._replayed = captured.outputs
        self.replays = True

    def call(self, case: Case) -> float:
        """One call; seconds by the judge's clock. Raises ForeignFailure."""
        batch = self.call_batch([case])
        self._outputs_of_batch = batch.outputs
        return batch.seconds

    def outputs(self) -> tuple[Array, ...]:
        return self._outputs_of_batch[0]

    def call_batch(self, cases: Sequence[Case], flusher: Flusher | None = None, *, checked: bool = True) -> Batch:
        """One call for each case, on slots that are filled now, with the caches emptied. Raises ForeignFailure.

        ``checked``: whether outputs are copied out, and inputs looked at; not for a baseline.
        """
        assert self._slots is not None
        for slot, case in enumerate(cases):
            self._slots.write(slot, case.inputs)
        if flusher is not None:
            flusher.flush()
        synchronize()
        request = wire.CallBatch(nonce=secrets.randbits(62), count=len(cases), replay=self.replays)
        elapsed, reply = self._process.timed_batch(request, self._call_seconds)
        specs = self._replayed if self.replays else reply.outputs
        if len(specs) != len(cases):
            raise ForeignFailure(Status.REJECTED, "it answered a batch with another number of calls")
        for one, case in zip(specs, cases, strict=True):
            check_kinds(one, case)
        late = self._time_copy(specs[-1])
        outputs = tuple(tuple(self._copy(spec) for spec in one) for one in specs) if checked else ()
        synchronize()
        for slot, case in enumerate(cases if checked else ()):
            if not self._slots.holds(slot, case.inputs):
                raise ForeignFailure(Status.INCORRECT, "forward changes its inputs")
        own = reply.seconds if 0 <= reply.seconds < self._call_seconds else 0.0
        return Batch(seconds=elapsed + late, own_seconds=own, outputs=outputs)

    def _time_copy(self, specs: Sequence[wire.TensorSpec]) -> float:
        """How much longer the first copy of the last call's outputs takes than the second.

        A process that answers before its kernels have ended delays it, or spoils its contents, which are the ones
        that are checked.
        """
        copies = []
        seconds = []
        for _ in range(2):
            began = time.perf_counter()
            copies.append([self._copy(spec) for spec in specs])
            synchronize()
            seconds.append(time.perf_counter() - began)
        for first, second in zip(*copies, strict=True):
            if first.nbytes and not bool((first.data.view("u1") == second.data.view("u1")).all()):
                raise ForeignFailure(Status.REJECTED, "its outputs still changed after it had answered")
        return max(0.0, seconds[0] - seconds[1])

    def _copy(self, spec: wire.TensorSpec) -> Array:
        try:
            return copy_out(self._mappings, spec)
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
