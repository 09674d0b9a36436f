"""Timing on a GPU: fresh process pairs, batches of calls on contents never seen before, every output checked.

Two clocks: the events of a process around a batch, and the judge's around the whole of it, with the way to the process
and back (some tenths of a millisecond, known from the baseline's batches). They must agree within _SLACK_SECONDS, else
the judge's counts. What a candidate could hide between them is taken off the interval's lower end, and a batch is made
long enough for that not to matter.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

import numpy as np

from judge.compiler import Compiler
from judge.cuda_device import free_bytes
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
_SLACK_SECONDS = 1e-4
"""How much longer than a baseline's batch a candidate's may be on its way before the judge's clock decides."""
_HIDEABLE_SECONDS = 1.5e-4
"""What a candidate could save of the way to it and back by rewriting the runner, and hide by false events."""
_FREE_SHARE = 0.4

KINDS = ("eager", "cuda_graph", "compile", "reduce_overhead")
"""Baselines: Model as it is, or compiled by torch.compile; by launches, or all calls captured as one CUDA graph."""


@dataclass(kw_only=True)
class Scouted:
    """What the baselines take before any candidate is timed: by their own clock, seconds a call by kind."""

    seconds: dict[str, float]
    compiled: CudaPlayer | None = None
    """Kept, since compiling takes seconds: the one process of a judge that lives for more than one pair."""

    @property
    def best(self) -> str:
        return min(self.seconds, key=self.seconds.__getitem__)

    def close(self) -> None:
        if self.compiled is not None:
            self.compiled.close()
            self.compiled = None


@dataclass(frozen=True, kw_only=True)
class CudaBank:
    """Cases for one process: batches of equal length, and one to warm up with; none is used twice in a process."""

    setup: Setup
    batches: tuple[tuple[Case, ...], ...]
    warmup: Case
    scouted: Scouted

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.batches[-1]


def scout(zygote: Zygote, task: Task, reference: CudaReference, like: Case, deadline: float) -> Scouted:
    """Time the baselines alone. Raises TaskError when the eager one fails; others that do are left out."""
    cases = reference.cases(2 * _SCOUT_CALLS, like)
    rounds = [cases[i : i + _SCOUT_CALLS] for i in range(0, len(cases), _SCOUT_CALLS)]
    slots = Slots(like.inputs, _SCOUT_CALLS)
    scouted = Scouted(seconds={})
    variant = task.variants_on("cuda")[0]
    try:
        with baseline_blamed(task), CudaPlayer.of_task(zygote, task, variant, deadline) as player:
            player.build(reference.setup, cases[0], slots)
            scouted.seconds |= _scout_player(player, rounds, ("eager", "cuda_graph"))
        if zygote.settings.cuda_compile_baseline:
            scouted.compiled, found = _scout_compiled(zygote, task, reference, rounds, slots)
            scouted.seconds |= found
    finally:
        slots.close()
    return scouted


def _scout_compiled(
    zygote: Zygote, task: Task, reference: CudaReference, rounds: Sequence[Sequence[Case]], slots: Slots
) -> tuple[CudaPlayer | None, dict[str, float]]:
    """A baseline compiled by torch.compile, in a process that is kept when it is any good."""
    deadline = time.monotonic() + 3600.0
    player: CudaPlayer | None = None
    try:
        player = CudaPlayer.of_task(zygote, task, task.variants_on("cuda")[0], deadline, compiled=True)
        player.allow(zygote.settings.total_seconds)
        player.build(reference.setup, rounds[0][0], slots)
        return player, _scout_player(player, rounds, ("compile", "reduce_overhead"))
    except ForeignFailure:
        if player is not None:
            player.close()
        return None, {}


def _scout_player(player: CudaPlayer, rounds: Sequence[Sequence[Case]], kinds: tuple[str, str]) -> dict[str, float]:
    """Seconds a call by launches, and captured where that is possible. Raises ForeignFailure."""
    flusher = Flusher()
    seconds: dict[str, float] = {}
    for kind in kinds:
        if kind == kinds[1]:
            try:
                player.capture()
            except ForeignFailure:
                break
        player.call_batch(rounds[0], checked=False)
        times = [player.call_batch(one, flusher, checked=False).own_seconds for one in (*rounds, *rounds)]
        seconds[kind] = float(np.min(times)) / _SCOUT_CALLS
    return seconds


def make_bank(reference: CudaReference, like: Case, scouted: Scouted, settings: JudgeSettings) -> CudaBank:
    """Batches of settings.cuda_batch_ms by the scouted time, as far as memory allows. Raises TaskError."""
    wanted = int(np.ceil(settings.cuda_batch_ms * 1e-3 / scouted.seconds[scouted.best]))
    rounds = settings.cuda_batches
    inputs = sum(array.nbytes for array in like.inputs)
    room = min(settings.cuda_bank_mb * (1 << 20), int(_FREE_SHARE * free_bytes()))
    # Outputs twice: the honest ones, and those of the baseline's or the candidate's last batch.
    fit = room // max(rounds * like.moved_bytes + 2 * like.moved_bytes - inputs, 1)
    length = max(4, min(wanted, fit, settings.cuda_max_calls))
    cases = reference.cases(rounds * length, like)
    return CudaBank(
        setup=reference.setup,
        batches=tuple(tuple(cases[i : i + length]) for i in range(0, len(cases), length)),
        warmup=like,
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
    hidden: list[float] = []
    try:
        for _ in range(settings.cuda_pairs):
            pair = _Pair(zygote, compiler, task, candidate, bank, slots, deadline, tally)
            times = pair.run()
            baseline += times[0]
            own += times[1]
            hidden.append((_SLACK_SECONDS + _HIDEABLE_SECONDS) / (float(np.median(times[1])) * len(bank.cases)))
            methods.add(pair.method)
            ratios.append(pair_log_ratio(*times))
            if is_clear_loser(ratios, settings.confidence, settings.win_threshold):
                break
    finally:
        slots.close()
    interval = speedup_interval(ratios, settings.confidence)
    others = {kind: seconds * 1e3 for kind, seconds in bank.scouted.seconds.items()}
    return Timing(
        interval=replace(interval, low=interval.low / (1 + float(np.median(hidden)))),
        baseline_ms=float(np.median(baseline)) * 1e3,
        candidate_ms=float(np.median(own)) * 1e3,
        pairs=len(ratios),
        method=" or ".join(sorted(methods)),
        best_baseline=bank.scouted.best,
        scouted_ms=others,
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
                theirs = self._baseline(stack)
            player = self._player(stack)
            try:
                player.capture()
                self.method = "graph"
            except ForeignFailure:
                # What is left of a failed capture is not worth trusting: a new process, timed by plain launches.
                player.close()
                player = self._player(stack)
            warmup = [bank.warmup] * len(bank.cases)
            for who in (theirs, player):
                self._play(who, warmup, is_candidate=who is player, checked=False)
            for cases in bank.batches:
                for who, seen in order.sample(((theirs, baseline), (player, candidate)), 2):
                    seen.append(self._play(who, cases, is_candidate=who is player, checked=who is player))
        return _credited(baseline, candidate, len(bank.cases))

    def _baseline(self, stack: ExitStack) -> CudaPlayer:
        scouted = self._bank.scouted
        if scouted.best in ("compile", "reduce_overhead"):
            assert scouted.compiled is not None
            player = scouted.compiled
            player.allow(self._zygote.settings.total_seconds)
        else:
            variant = self._task.variants_on("cuda")[0]
            player = stack.enter_context(CudaPlayer.of_task(self._zygote, self._task, variant, self._deadline))
        player.build(self._bank.setup, self._bank.cases[0], self._slots)
        if scouted.best in ("cuda_graph", "reduce_overhead"):
            player.capture()
        return player

    def _player(self, stack: ExitStack) -> CudaPlayer:
        player = stack.enter_context(
            CudaPlayer.of_candidate(self._zygote, self._compiler, self._candidate, self._deadline)
        )
        with candidate_blamed(self._compiler):
            player.build(self._bank.setup, self._bank.cases[0], self._slots)
        return player

    def _play(self, player: CudaPlayer, cases: Sequence[Case], *, is_candidate: bool, checked: bool) -> Batch:
        blamed = candidate_blamed(self._compiler) if is_candidate else baseline_blamed(self._task)
        with blamed:
            batch = player.call_batch(cases, self._flusher, checked=checked)
            for outputs, case in zip(batch.outputs, cases, strict=False):
                self._tally.check(outputs, case)
        return replace(batch, outputs=())


def _credited(baseline: Sequence[Batch], candidate: Sequence[Batch], calls: int) -> tuple[list[float], list[float]]:
    """Seconds a call: the baseline's by its own events; the candidate's by its own as long as the judge's clock agrees.

    The way to a process and back is the judge's clock less the process's events. A candidate whose way is longer than
    the baseline's has reported less than it took, and is credited the judge's clock.
    """
    way = float(np.median([max(0.0, batch.seconds - batch.own_seconds) for batch in baseline]))
    theirs = [batch.own_seconds / calls for batch in baseline]
    own = [max(batch.own_seconds, batch.seconds - way - _SLACK_SECONDS, 0.01 * batch.seconds) for batch in candidate]
    return theirs, [seconds / calls for seconds in own]
