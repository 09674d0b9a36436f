"""Timing by fresh process pairs, on contents never seen before, every output checked."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import numpy as np

from judge.compiler import Compiler
from judge.player import ErrorTally, Player, candidate_blamed
from judge.process import ForeignFailure, Zygote
from judge.reference import Case, Reference, Setup
from judge.settings import JudgeSettings
from judge.statistics import Interval, is_clear_loser, pair_log_ratio, speedup_interval
from judge.types import Candidate
from tasks.errors import TaskError
from tasks.types import Task

MIN_CALLS = 4


@dataclass(frozen=True, kw_only=True)
class Bank:
    """Cases for one process: the first ones warm up, the others are timed; none is used twice in a process."""

    setup: Setup
    cases: tuple[Case, ...]
    warmup: int


@dataclass(frozen=True, kw_only=True)
class Timing:
    interval: Interval
    baseline_ms: float
    candidate_ms: float
    pairs: int
    method: str = "calls"
    """How: "calls" one by one, or on a GPU in batches as "graph" or by "launches"."""
    best_baseline: str = "eager"
    """Which one baseline_ms and the interval are of."""
    scouted_ms: Mapping[str, float] = field(default_factory=dict)
    """Other baselines, by a short look."""
    notes: tuple[str, ...] = ()
    """What disturbed it: flags for the verdict."""
    hardware: Mapping[str, str] = field(default_factory=dict)
    """What was seen of the machine meanwhile, such as its clock."""


def make_bank(reference: Reference, settings: JudgeSettings) -> Bank:
    """As many cases as settings ask for and bank_mb allows, at least MIN_CALLS timed ones. Raises TaskError."""
    first = reference.case("given")
    fit = int(settings.bank_mb * (1 << 20) / max(first.nbytes, 1))
    warmup = min(settings.warmup_calls, max(1, fit - MIN_CALLS))
    calls = max(MIN_CALLS, min(settings.calls, fit - warmup))
    cases = [first, *(reference.case("given") for _ in range(warmup + calls - 1))]
    return Bank(setup=reference.setup, cases=tuple(cases), warmup=warmup)


def time_candidate(
    zygote: Zygote, compiler: Compiler, task: Task, candidate: Candidate, bank: Bank, deadline: float, tally: ErrorTally
) -> Timing:
    """Pairs of fresh processes until settings.pairs or until it clearly loses.

    Raises ForeignFailure when the candidate fails or is wrong in any call, TaskError when the baseline fails.
    """
    settings = zygote.settings
    ratios: list[float] = []
    baseline: list[float] = []
    own: list[float] = []
    for _ in range(settings.pairs):
        times = _time_pair(zygote, compiler, task, candidate, bank, deadline, tally)
        baseline += times[0]
        own += times[1]
        ratios.append(pair_log_ratio(*times))
        if is_clear_loser(ratios, settings.confidence, settings.win_threshold):
            break
    return Timing(
        interval=speedup_interval(ratios, settings.confidence),
        baseline_ms=float(np.median(baseline)) * 1e3,
        candidate_ms=float(np.median(own)) * 1e3,
        pairs=len(ratios),
    )


def _time_pair(
    zygote: Zygote, compiler: Compiler, task: Task, candidate: Candidate, bank: Bank, deadline: float, tally: ErrorTally
) -> tuple[list[float], list[float]]:
    """Seconds of the baseline's and the candidate's calls, alternating in random order; one runs, the other stands."""
    order = random.SystemRandom()
    baseline_seconds: list[float] = []
    candidate_seconds: list[float] = []
    with ExitStack() as stack:
        with baseline_blamed(task):
            baseline = stack.enter_context(Player.of_task(zygote, task, task.variants[0], deadline))
            baseline.prepare(bank.setup, bank.cases[0])
        player = stack.enter_context(Player.of_candidate(zygote, compiler, candidate, deadline))
        with candidate_blamed(compiler):
            player.prepare(bank.setup, bank.cases[0])

        def time_baseline(case: Case) -> None:
            with baseline_blamed(task):
                baseline.call(case)
            # Not the judge's clock, which also sees up to 0.1 ms of wake-up and Python around the call: a candidate
            # could rewrite the runner to save that, and would beat the baseline by it with the baseline's own kernel.
            baseline_seconds.append(baseline.own_seconds)

        def time_candidate(case: Case) -> None:
            with candidate_blamed(compiler):
                candidate_seconds.append(player.call(case))

        for case in bank.cases:
            for call in order.sample((time_baseline, time_candidate), 2):
                call(case)
            # Only now: between the two calls it would cool the caches for whoever comes second, mostly the baseline.
            with candidate_blamed(compiler):
                tally.check(player.outputs(), case)
    return baseline_seconds[bank.warmup :], candidate_seconds[bank.warmup :]


@contextmanager
def baseline_blamed(task: Task) -> Iterator[None]:
    """The baseline is the task's own code: its failures are the task's."""
    try:
        yield
    except ForeignFailure as failure:
        raise TaskError(f"{task.where}: the baseline fails: {failure.message}") from None


def faster_than_light(timing: Timing, cases: Sequence[Case], settings: JudgeSettings) -> str:
    """Why no machine can be as fast, empty when it can: a call took less than its bytes need at peak_memory_gbps, or
    than its products need at peak_gflops (roofline)."""
    moved, seconds = cases[-1].moved_bytes, timing.candidate_ms * 1e-3
    if seconds < moved / (settings.peak_memory_gbps * 1e9):
        return f"{seconds * 1e6:.1f} us a call is faster than its bytes can move ({moved} bytes)"
    return too_fast_for_products(seconds, cases[-1].flops, settings.peak_gflops * 1e9 * settings.threads)


FEWEST_OPERATIONS = 0.25
"""Of what the reference does: an honest algorithm may need fewer (Winograd's convolutions, a mask's half)."""


def too_fast_for_products(seconds: float, flops: int, peak: float) -> str:
    """Why a call of so many floating-point operations cannot be as fast; empty when it can."""
    if seconds >= FEWEST_OPERATIONS * flops / peak:
        return ""
    return f"{seconds * 1e6:.1f} us a call is beyond the speed of light: its products are {flops} operations"
