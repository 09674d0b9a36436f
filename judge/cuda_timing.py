"""Timing on a GPU: fresh processes of the candidate, batches of calls on contents never seen before, outputs checked.

Two clocks: the events of a process around a batch, and the judge's around the whole of it, until every output was in
the judge's own memory. They differ by the way to the process and back (a millisecond and the copies), which is known
from the baseline's batches. They must agree within _SLACK_SECONDS, else the judge's counts. What a candidate could hide
between them is taken off the interval's lower end, and a batch is made long enough for that not to matter.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from judge.compiler import Compiler
from judge.cuda_device import free_bytes
from judge.cuda_memory import Flusher, Slots, Stores
from judge.cuda_player import Batch, CudaPlayer
from judge.cuda_reference import CudaReference
from judge.cuda_task import CudaTask
from judge.cuda_verify import check_all
from judge.cuda_watch import Clock, await_quiet, clocks_text, read_clock
from judge.errors import JudgeError
from judge.player import ErrorTally, candidate_blamed
from judge.process import ForeignFailure, Zygote
from judge.reference import Case, Setup
from judge.settings import JudgeSettings
from judge.statistics import is_clear_loser, pair_log_ratio, speedup_interval
from judge.timing import Timing, baseline_blamed
from judge.types import Candidate, Status
from tasks.types import Task

_SLACK_SECONDS = 5e-5
"""How much longer than the baseline's a candidate's way may be (medians) before the judge's clock decides."""
_HIDEABLE_SECONDS = 1.5e-4
"""What a candidate could save of its way by rewriting the runner, and hide by false events."""
_FREE_SHARE = 0.6
_CLOCK_SHARE = 0.03
_RETAKES = 2
"""Process pairs that are thrown away for a changed clock, in all: never without end."""
CLOCK_CHANGED = "the GPU's clock changed while it was timed"
SHARED_GPU = "the GPU was shared with others while it was timed"


@dataclass(frozen=True, kw_only=True)
class CudaBank:
    """Cases for one process: batches of equal length, and one to warm up with; none is used twice in a process."""

    setup: Setup
    batches: tuple[tuple[Case, ...], ...]
    warmup: Case
    kept: CudaTask

    @property
    def cases(self) -> tuple[Case, ...]:
        return self.batches[-1]


def make_bank(reference: CudaReference, like: Case, kept: CudaTask, settings: JudgeSettings) -> CudaBank:
    """Batches of settings.cuda_batch_ms by the best baseline's time, as far as memory allows. Raises TaskError."""
    wanted = int(np.ceil(settings.cuda_batch_ms * 1e-3 / kept.seconds[kept.best]))
    inputs = sum(array.nbytes for array in like.inputs)
    outputs = like.moved_bytes - inputs
    room = min(settings.cuda_bank_mb * (1 << 20), int(_FREE_SHARE * free_bytes()))
    # For each call of a batch: its contents in the bank (once for each batch), a slot, and its outputs in the
    # baseline, in the candidate and in the judge.
    fit = room // max(settings.cuda_batches * like.moved_bytes + inputs + 3 * outputs, 1)
    length = max(4, min(wanted, fit, settings.cuda_max_calls))
    cases = reference.cases(settings.cuda_batches * length, like)
    return CudaBank(
        setup=reference.setup,
        batches=tuple(tuple(cases[i : i + length]) for i in range(0, len(cases), length)),
        warmup=like,
        kept=kept,
    )


@dataclass(kw_only=True)
class _Seen:
    """Batches of the baseline and of one candidate process, in the same order."""

    baseline: list[Batch] = field(default_factory=list)
    candidate: list[Batch] = field(default_factory=list)
    method: str = "launches"
    baseline_clocks: list[Clock] = field(default_factory=list)
    candidate_clocks: list[Clock] = field(default_factory=list)

    @property
    def clock_changed(self) -> bool:
        """Whether the GPU's clock differed between the two by more than _CLOCK_SHARE (medians)."""
        medians = [
            float(np.median([c.mhz for c in one] or [0])) for one in (self.baseline_clocks, self.candidate_clocks)
        ]
        return min(medians) > 0 and max(medians) / min(medians) > 1 + _CLOCK_SHARE


class _DisturbedError(Exception):
    """Foreign kernels run on the GPU when nobody should."""


def time_candidate(
    zygote: Zygote,
    compiler: Compiler,
    task: Task,
    candidate: Candidate,
    bank: CudaBank,
    deadline: float,
    tally: ErrorTally,
) -> Timing:
    """settings.cuda_pairs fresh processes, fewer when it clearly loses. Raises as judge.timing's."""
    settings, calls = zygote.settings, len(bank.cases)
    slots = Slots(bank.cases[0].inputs, calls)
    stores = Stores(bank.cases[0].honest, calls)
    seen: list[_Seen] = []
    try:
        with baseline_blamed(task):
            baseline = bank.kept.baseline(settings.total_seconds)
            baseline.build(bank.setup, bank.cases[0], slots)
            if bank.kept.captures:
                baseline.capture()
        stage = _Stage(zygote, compiler, task, candidate, bank, slots, stores, deadline, tally)
        retakes = _RETAKES
        while len(seen) < settings.cuda_pairs:
            one = stage.play(baseline)
            if one.clock_changed and retakes:
                retakes -= 1
                continue
            seen.append(one)
            ratios = [pair_log_ratio(*times) for times in _credited(seen, calls)]
            if is_clear_loser(ratios, settings.confidence, settings.win_threshold):
                break
    finally:
        slots.close()
    times = _credited(seen, calls)
    candidate_seconds = float(np.median([second for _, own in times for second in own]))
    interval = speedup_interval([pair_log_ratio(*one) for one in times], settings.confidence)
    hidden = (_SLACK_SECONDS + _HIDEABLE_SECONDS) / (candidate_seconds * calls)
    clocks = clocks_text(
        [clock for one in seen for clock in one.baseline_clocks],
        [clock for one in seen for clock in one.candidate_clocks],
    )
    return Timing(
        interval=replace(interval, low=interval.low / (1 + hidden)),
        baseline_ms=float(np.median([second for theirs, _ in times for second in theirs])) * 1e3,
        candidate_ms=candidate_seconds * 1e3,
        pairs=len(seen),
        method=" or ".join(sorted({one.method for one in seen})),
        best_baseline=bank.kept.best,
        scouted_ms={kind: seconds * 1e3 for kind, seconds in bank.kept.seconds.items()},
        notes=tuple(
            note
            for note, holds in (
                (CLOCK_CHANGED, any(one.clock_changed for one in seen)),
                (SHARED_GPU, not stage.alone),
            )
            if holds
        ),
        hardware={"sm_mhz": clocks} if clocks else {},
    )


class _Stage:
    """Where the baseline and fresh processes of one candidate work in turns; the other stands."""

    def __init__(
        self,
        zygote: Zygote,
        compiler: Compiler,
        task: Task,
        candidate: Candidate,
        bank: CudaBank,
        slots: Slots,
        stores: Stores,
        deadline: float,
        tally: ErrorTally,
    ) -> None:
        self._zygote, self._compiler, self._task, self._candidate = zygote, compiler, task, candidate
        self._bank, self._slots, self._stores, self._deadline, self._tally = bank, slots, stores, deadline, tally
        self._flusher = Flusher()
        self.alone = await_quiet()
        """Whether the GPU was the judge's alone before the candidate's first process; then it must stay so."""

    def play(self, baseline: CudaPlayer) -> _Seen:
        """One fresh process of the candidate against the baseline. Raises JudgeError: somebody else uses the GPU."""
        seen = _Seen()
        player = self._player()
        try:
            try:
                player.capture()
                seen.method = "graph"
            except ForeignFailure:
                # What is left of a failed capture is not worth trusting: a new process, timed by plain launches.
                player.close()
                player = self._player()
            warmup = [self._bank.warmup] * len(self._bank.cases)
            self._call(baseline, warmup, is_candidate=False)
            self._call(player, warmup, is_candidate=True)
            for cases in self._bank.batches:
                turns = [(baseline, seen.baseline), (player, seen.candidate)]
                random.SystemRandom().shuffle(turns)
                for who, batches in turns:
                    batches.append(self._call(who, cases, is_candidate=who is player))
                    (seen.candidate_clocks if who is player else seen.baseline_clocks).append(read_clock())
        except _DisturbedError:
            player.close()
            if await_quiet():
                message = "kernels that it has launched still run while it should stand still"
                raise ForeignFailure(Status.REJECTED, message) from None
            raise JudgeError("another program began to use the GPU while a candidate was timed") from None
        finally:
            player.close()
        return seen

    def _check_quiet(self) -> None:
        if self.alone and not await_quiet():
            raise _DisturbedError

    def _player(self) -> CudaPlayer:
        player = CudaPlayer.of_candidate(self._zygote, self._compiler, self._candidate, self._deadline)
        try:
            with candidate_blamed(self._compiler):
                player.build(self._bank.setup, self._bank.cases[0], self._slots)
        except BaseException:
            player.close()
            raise
        return player

    def _call(self, player: CudaPlayer, cases: Sequence[Case], *, is_candidate: bool) -> Batch:
        if not is_candidate:
            with baseline_blamed(self._task):
                return player.call_batch(cases, self._stores, self._flusher, self._check_quiet)
        with candidate_blamed(self._compiler):
            batch = player.call_batch(cases, self._stores, self._flusher, self._check_quiet)
            player.check_inputs(cases)
            if (wrong := check_all(self._stores, cases)) is not None:
                self._tally.check(self._stores.outputs(wrong), cases[wrong])
                raise ForeignFailure(Status.INCORRECT, f"wrong in a timed call ({cases[wrong].label})")
            return batch


def _credited(seen: Sequence[_Seen], calls: int) -> list[tuple[list[float], list[float]]]:
    """For each process seconds a call: the baseline's by its own events; the candidate's by its own as long as the
    judge's clock agrees.

    The way to a process and back is the judge's clock less the process's events. A candidate whose way is longer than
    the baseline's has reported less than it took, and is given the difference.
    """
    ways = [np.median([b.seconds - b.own_seconds for b in which]) for which in _columns(seen)]
    late = max(0.0, float(ways[1] - ways[0]) - _SLACK_SECONDS)
    return [
        (
            [batch.own_seconds / calls for batch in one.baseline],
            [(batch.own_seconds + late) / calls for batch in one.candidate],
        )
        for one in seen
    ]


def _columns(seen: Sequence[_Seen]) -> tuple[list[Batch], list[Batch]]:
    return [b for one in seen for b in one.baseline], [b for one in seen for b in one.candidate]
