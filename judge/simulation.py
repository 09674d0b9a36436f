"""The rule of judge/statistics.py tried on made-up noise: false wins, the interval's real coverage, power.

    rates(np.random.default_rng(0), noise=Noise(), true_speedup=1.05, runs=20000, pairs=7, calls=20)

The noise is that of RECIPES' measurements: every process has a bias of its own, which its calls share, every call has
noise, and now and then a call is disturbed. The rule is computed for all runs at once; tests check it against the
functions that the judge uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

MIN_PAIRS = 3
"""From so many pairs on a clear loser is let go (judge.statistics.is_clear_loser)."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Of times, as logarithms. The defaults are those of one pinned thread on two shared cores."""

    process_sd: float = 0.028
    """Standard deviation of a process's bias."""
    call_sd: float = 0.20
    """Of a call within its process."""
    disturbed: float = 0.0
    """Share of calls that something else slows down ..."""
    slower: float = 3.0
    """... by a factor of up to so much."""
    tail: float = 0.0
    """Degrees of freedom of a t distribution for the processes' bias, scaled to process_sd; 0: normal."""


@dataclass(frozen=True, kw_only=True)
class Rates:
    wins: float
    """Share of runs whose interval's lower end is above the threshold."""
    coverage: float
    """Share of intervals that hold the true speedup."""
    half_width: float
    """Median of (high - low) / 2, as a share of the speedup."""
    pairs: float
    """Mean number of pairs used: fewer where clear losers stop early."""


def pair_ratios(
    rng: np.random.Generator, *, noise: Noise, true_speedup: float, runs: int, pairs: int, calls: int
) -> NDArray[np.float64]:
    """[runs, pairs]: the median log ratio of each simulated pair of processes."""
    shape = (2, runs, pairs)
    if noise.tail:
        scale = np.sqrt((noise.tail - 2) / noise.tail)  # a t distribution's variance is tail / (tail - 2)
        bias = rng.standard_t(noise.tail, shape) * scale * noise.process_sd
    else:
        bias = rng.normal(0.0, noise.process_sd, shape)
    times = bias[..., None] + rng.normal(0.0, noise.call_sd, (*shape, calls))
    if noise.disturbed:
        hit = rng.random(times.shape) < noise.disturbed
        times += hit * np.log1p(rng.random(times.shape) * (noise.slower - 1))
    return np.median(times[0] - times[1], axis=-1) + np.log(true_speedup)


def judge_ratios(ratios: NDArray[np.float64], *, true_speedup: float, confidence: float, win_threshold: float) -> Rates:
    """The judge's rule on [runs, pairs] log ratios, early stops included."""
    runs, pairs = ratios.shape
    count = np.arange(1, pairs + 1)
    mean = np.cumsum(ratios, axis=1) / count
    square = np.maximum(np.cumsum(ratios**2, axis=1) - count * mean**2, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        sd = np.sqrt(square / (count - 1))
        half = stats.t.ppf(0.5 + confidence / 2, count - 1) * sd / np.sqrt(count)
    half[:, 0] = np.inf
    stops = (mean + half < np.log(win_threshold)) & (count >= MIN_PAIRS)
    stops[:, -1] = True
    last = stops.argmax(axis=1)
    row = np.arange(runs)
    middle, width = mean[row, last], half[row, last]
    low, high = middle - width, middle + width
    truth = np.log(true_speedup)
    return Rates(
        wins=float((low > np.log(win_threshold)).mean()),
        coverage=float(((low <= truth) & (truth <= high)).mean()),
        half_width=float(np.median(np.sinh(width))),
        pairs=float((last + 1).mean()),
    )


def rates(
    rng: np.random.Generator,
    *,
    noise: Noise,
    true_speedup: float,
    runs: int,
    pairs: int,
    calls: int,
    confidence: float = 0.99,
    win_threshold: float = 1.01,
) -> Rates:
    """``pair_ratios`` judged."""
    ratios = pair_ratios(rng, noise=noise, true_speedup=true_speedup, runs=runs, pairs=pairs, calls=calls)
    return judge_ratios(ratios, true_speedup=true_speedup, confidence=confidence, win_threshold=win_threshold)


def rates_of_spread(
    rng: np.random.Generator,
    *,
    pair_sd: float,
    true_speedup: float,
    pairs: int,
    confidence: float = 0.99,
    win_threshold: float = 1.01,
    runs: int = 20000,
) -> Rates:
    """The same where the pairs' own standard deviation was measured."""
    ratios = rng.normal(np.log(true_speedup), pair_sd, (runs, pairs))
    return judge_ratios(ratios, true_speedup=true_speedup, confidence=confidence, win_threshold=win_threshold)
