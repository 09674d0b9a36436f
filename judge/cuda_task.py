"""What the judge keeps for one task on a GPU from candidate to candidate: its references and its baseline.

They run the task's own code only, and on a GPU a new process costs a quarter of a second. Processes of one model differ
by some thousandths there (docs/judge.md), so the baseline need not be a fresh process for each pair; candidates are.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np

from judge.cuda_memory import Flusher, Slots, Stores
from judge.cuda_player import CudaPlayer
from judge.cuda_reference import CudaReference
from judge.errors import JudgeError
from judge.process import ForeignFailure, Zygote
from judge.reference import Case
from judge.timing import baseline_blamed
from tasks.errors import TaskError
from tasks.types import Task, Variant

KINDS = ("eager", "cuda_graph", "compile", "reduce_overhead")
"""Baselines: Model as it is, or compiled by torch.compile; by launches, or all calls captured as one CUDA graph."""

_SCOUT_CALLS = 16
_LASTING_SECONDS = 7 * 86400.0


class CudaTask:
    """Everything of one task that is kept; ``use`` it for another and it begins anew."""

    def __init__(self) -> None:
        self._judged: tuple[str, tuple[Variant, ...]] | None = None
        self._references: dict[str, CudaReference] = {}
        self._players: dict[bool, CudaPlayer] = {}
        self.seconds: dict[str, float] = {}
        """Of a call by kind of baseline, by its own clock: a short look, to find the best."""
        self.failures: dict[str, str] = {}
        """Baselines that could not be had, and why."""

    @contextmanager
    def reference(self, zygote: Zygote, task: Task, variant: Variant, deadline: float) -> Iterator[CudaReference]:
        """A reference with a model of new parameters. Raises TaskError."""
        if self._judged != (task.source, task.variants_on("cuda")):
            self.close()
            self._judged = task.source, task.variants_on("cuda")
        try:
            if variant.name in self._references:
                self._references[variant.name].renew(deadline)
            else:
                self._references[variant.name] = CudaReference(zygote, task, variant, deadline)
            yield self._references[variant.name]
        except (TaskError, JudgeError):
            self.close()
            raise

    @property
    def best(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    def baseline(self, seconds: float) -> CudaPlayer:
        """The process of the best baseline, which has so many seconds from now on."""
        player = self._players[self.best in KINDS[2:]]
        player.allow(seconds)
        return player

    @property
    def captures(self) -> bool:
        """Whether the best baseline is one that is captured."""
        return self.best in ("cuda_graph", "reduce_overhead")

    def scout(self, zygote: Zygote, task: Task, reference: CudaReference, like: Case) -> None:
        """Time the baselines alone, once. Raises TaskError when the eager one fails; others are left out."""
        if self.seconds:
            return
        cases = reference.cases(_SCOUT_CALLS, like)
        slots = Slots(like.inputs, _SCOUT_CALLS)
        stores = Stores(like.honest, _SCOUT_CALLS)
        try:
            with baseline_blamed(task):
                self._scout(zygote, task, reference, cases, slots, stores, compiled=False)
            if zygote.settings.cuda_compile_baseline:
                try:
                    self._scout(zygote, task, reference, cases, slots, stores, compiled=True)
                except ForeignFailure as failure:
                    self.failures["compile"] = failure.message
                    if True in self._players:
                        self._players.pop(True).close()
        finally:
            slots.close()

    def _scout(
        self,
        zygote: Zygote,
        task: Task,
        reference: CudaReference,
        cases: Sequence[Case],
        slots: Slots,
        stores: Stores,
        *,
        compiled: bool,
    ) -> None:
        variant = task.variants_on("cuda")[0]
        deadline = time.monotonic() + _LASTING_SECONDS
        player = CudaPlayer.of_task(zygote, task, variant, deadline, compiled=compiled)
        self._players[compiled] = player
        player.allow(zygote.settings.total_seconds)
        player.build(reference.setup, cases[0], slots)
        flusher = Flusher()
        for kind in KINDS[2:] if compiled else KINDS[:2]:
            if kind in ("cuda_graph", "reduce_overhead"):
                try:
                    player.capture()
                except ForeignFailure as failure:
                    # What is left of a failed capture is not worth trusting: a new process for the plain baseline.
                    self.failures[kind] = failure.message
                    player.close()
                    self._players[compiled] = CudaPlayer.of_task(zygote, task, variant, deadline, compiled=compiled)
                    return
            times = [player.call_batch(cases, stores, flusher).own_seconds for _ in range(4)]
            self.seconds[kind] = float(np.min(times[1:])) / len(cases)

    def close(self) -> None:
        for reference in self._references.values():
            reference.close()
        for player in self._players.values():
            player.close()
        self._references.clear()
        self._players.clear()
        self.seconds.clear()
        self.failures.clear()
        self._judged = None
