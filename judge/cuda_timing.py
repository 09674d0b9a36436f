"""Timing on a GPU: fresh process pairs, batches of calls on contents never seen before, every output checked.

The deciding clock is the judge's, around a whole batch. The way to a process and back is a fifth of a millisecond,
known from the baseline's batches (judge's clock less the process's own events), and is taken off the candidate's; what
a candidate's own events say counts when it is the larger. So a batch is made long enough for the rest not to matter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from judge.compiler import Compiler
from judge.cuda_memory import Flusher, Slots
from judge.cuda_player import Batch, CudaPlayer
from judge.cuda_reference import CudaReference
from judge.player import ErrorTally, candidate_blamed
from judge.process import ForeignFailure, Zygote
from judge.reference import Case, Setup
from judge.settings import JudgeSettings
from judge.statistics import is_clear_loser, pair_log_ratio, speedup_interval
from judge.timing import Timing, baseline_blamed
from judge.types import Candidate
from tasks.types import Task

_SCOUT_CALLS = 4


@dataclass(frozen=True, kw_only=True)
class Scouted:
    """What one process of the baseline says, before any candidate is timed: by its own clock, seconds a call."""

    stream: float
    graph: float | None
    """None when the model cannot be captured."""

    @property
    def best(self) -> float:
        return min(self.stream, self.graph or self.stream)

    @property
    def replays(self) -> bool:
        return self.graph is not None and self.graph <= self.stream


@dataclass(frozen=True, kw_only=True)
class CudaBank:
    """Cases for one process: batches of equal length, the first warms up; none is used twice in a process."""

    setup: Setup
    batches: tuple[tuple[Case, ...], ...]
    scouted: Scouted

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.batches[-1]


def scout(zygote: Zygote, task: Task, reference: CudaReference, like: Case, deadline: float) -> Scouted:
    """Time the baseline alone, as it is and as a CUDA graph. Raises TaskError."""
    flusher = Flusher()
    cases = reference.cases(3 * _SCOUT_CALLS, like)
    rounds = [cases[i : i + _SCOUT_CALLS] for i in range(0, len(cases), _SCOUT_CALLS)]
    slots = Slots(like.inputs, _SCOUT_CALLS)
    try:
        with baseline_blamed(task), CudaPlayer.of_task(zygote, task, task.variants_on("cuda")[0], deadline) as player:
            player.build(reference.setup, cases[0], slots)
            seconds: dict[bool, float] = {}
            for replays in (False, True):
                if replays:
                    try:
                        player.capture()
                    except ForeignFailure:
                        break
                player.call_batch(rounds[0])
                times = [player.call_batch(one, flusher).own_seconds for one in rounds[1:]]
                seconds[replays] = float(np.min(times)) / _SCOUT_CALLS
    finally:
        slots.close()
    return Scouted(stream=seconds[False], graph=seconds.get(True))


def make_bank(reference: CudaReference, like: Case, scouted: Scouted, settings: JudgeSettings) -> CudaBank:
    """Batches of settings.cuda_batch_ms by the scouted time, as far as cuda_bank_mb allows. Raises TaskError."""
    wanted = int(np.ceil(settings.cuda_batch_ms * 1e-3 / scouted.best))
    rounds = settings.cuda_batches + 1
    inputs = sum(array.nbytes for array in like.inputs)
    fit = int(settings.cuda_bank_mb * (1 << 20) / max(rounds * like.moved_bytes + inputs, 1))
    length = max(4, min(wanted, fit, settings.cuda_max_calls))
    cases = reference.cases(rounds * length, like)
    return CudaBank(
        setup=reference.setup,
        batches=tuple(tuple(cases[i : i + length]) for i in range(0, len(cases), length)),
        scouted=scouted,
    )


def time_candidate(
    zygote: Zygote,
    compiler: Compiler,
    task: Task,
    candidate: Candidate,
    bank: CudaBank,
    deadline: float,
    tally: ErrorTally,
) -> Timing:
    """Pairs of fresh processes until settings.cuda_pairs or until it clearly loses. Raises as judge.timing's."""
    settings = zygote.settings
    slots = Slots(bank.cases[0].inputs, len(bank.cases))
    ratios: list[float] = []
    baseline: list[float] = []
    own: list[float] = []
    methods: set[str] = set()
    try:
        for _ in range(settings.cuda_pairs):
            pair = _Pair(zygote, compiler, task, candidate, bank, slots, deadline, tally)
            times = pair.run()
            baseline += times[0]
            own += times[1]
            methods.add(pair.method)
            ratios.append(pair_log_ratio(*times))
            if is_clear_loser(ratios, settings.confidence, settings.win_threshold):
                break
    finally:
        slots.close()
    return Timing(
        interval=speedup_interval(ratios, settings.confidence),
        baseline_ms=float(np.median(baseline)) * 1e3,
        candidate_ms=float(np.median(own)) * 1e3,
        pairs=len(ratios),
        method=" or ".join(sorted(methods)),
    )


class _Pair:
    """One fresh process of the baseline and one of the candidate; they work in turns, the other stands."""

    def __init__(
        self,
        zygote: Zygote,
        compiler: Compiler,
        task: Task,
        candidate: Candidate,
        bank: CudaBank,
        slots: Slots,
        deadline: float,
        tally: ErrorTally,
    ) -> None:
        self._zygote, self._compiler, self._task, self._candidate = zygote, compiler, task, candidate
        self._bank, self._slots, self._deadline, self._tally = bank, slots, deadline, tally
        self._flusher = Flusher()
        self.method = "launches"

    def run(self) -> tuple[list[float], list[float]]:
        """Seconds a call of the baseline and of the candidate, one for each batch."""
        bank, order = self._bank, random.SystemRandom()
        baseline: list[Batch] = []
        candidate: list[Batch] = []
        with ExitStack() as stack:
            with baseline_blamed(self._task):
                variant = self._task.variants_on("cuda")[0]
                theirs = stack.enter_context(CudaPlayer.of_task(self._zygote, self._task, variant, self._deadline))
                theirs.build(bank.setup, bank.cases[0], self._slots)
                if bank.scouted.replays:
                    theirs.capture()
            player = stack.enter_context(
                CudaPlayer.of_candidate(self._zygote, self._compiler, self._candidate, self._deadline)
            )
            with candidate_blamed(self._compiler):
                player.build(bank.setup, bank.cases[0], self._slots)
            try:
                player.capture()
                self.method = "graph"
            except ForeignFailure:
                # What is left of a failed capture is not worth trusting: a new process, timed by plain launches.
                player.close()
                player = stack.enter_context(
                    CudaPlayer.of_candidate(self._zygote, self._compiler, self._candidate, self._deadline)
                )
                with candidate_blamed(self._compiler):
                    player.build(bank.setup, bank.cases[0], self._slots)
            for cases in bank.batches:
                turns = order.sample(((theirs, baseline), (player, candidate)), 2)
                for who, seen in turns:
                    seen.append(self._play(who, cases, is_candidate=who is player))
        return _credited(baseline[1:], candidate[1:], len(bank.cases))

    def _play(self, player: CudaPlayer, cases: Sequence[Case], *, is_candidate: bool) -> Batch:
        if not is_candidate:
            with baseline_blamed(self._task):
                return _without_outputs(player.call_batch(cases, self._flusher))
        with candidate_blamed(self._compiler):
            batch = player.call_batch(cases, self._flusher)
            for outputs, case in zip(batch.outputs, cases, strict=True):
                self._tally.check(outputs, case)
        return _without_outputs(batch)


def _without_outputs(batch: Batch) -> Batch:
    return Batch(seconds=batch.seconds, own_seconds=batch.own_seconds, outputs=())


def _credited(baseline: Sequence[Batch], candidate: Sequence[Batch], calls: int) -> tuple[list[float], list[float]]:
    """Seconds a call: the baseline's by its own events, the candidate's by the slower of both clocks."""
    way = float(np.median([max(0.0, batch.seconds - batch.own_seconds) for batch in baseline]))
    theirs = [batch.own_seconds / calls for batch in baseline]
    own = [max(batch.own_seconds, batch.seconds - way, 0.05 * batch.seconds) / calls for batch in candidate]
    return theirs, own
