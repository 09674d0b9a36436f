"""Speedups with intervals. The unit is the fresh process pair.

Calls within one process share its memory layout and its luck: on a shared CPU the bias between processes is 3 to 10%
and more calls never remove it, so a rule over calls calls a kernel faster than itself in a quarter of all tries. Each
pair of fresh processes (baseline, candidate) therefore gives one number, the median log ratio of its interleaved
calls, and a t interval over the pairs gives the speedup's interval.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A speedup with its two-sided confidence interval."""

    speedup: float
    low: float
    high: float


def pair_log_ratio(baseline_seconds: Sequence[float], candidate_seconds: Sequence[float]) -> float:
    """Median of log(baseline / candidate) over the interleaved calls of one pair.

    Raises:
        ValueError: unequal or no calls, or a time that is not a positive number.
    """
    baseline, candidate = np.asarray(baseline_seconds, dtype=float), np.asarray(candidate_seconds, dtype=float)
    if baseline.shape != candidate.shape or baseline.size == 0:
        raise ValueError(f"a pair needs as many baseline as candidate calls, got {baseline.size} and {candidate.size}")
    times = np.concatenate([baseline, candidate])
    if not (np.isfinite(times).all() and (times > 0).all()):
        raise ValueError("call times must be positive numbers")
    return float(np.median(np.log(baseline) - np.log(candidate)))


def speedup_interval(pair_log_ratios: Sequence[float], confidence: float) -> Interval:
    """exp of the t interval for the mean of the pairs' log ratios: mean +- t(1 - alpha/2, K - 1) * s / sqrt(K).

    With one pair the interval is (0, inf): one pair says nothing about the bias between processes.
    """
    values = np.asarray(pair_log_ratios, dtype=float)
    if values.size == 0:
        raise ValueError("no pairs")
    mean = float(values.mean())
    if values.size == 1:
        return Interval(speedup=math.exp(mean), low=0.0, high=math.inf)
    half = float(stats.t.ppf(0.5 + confidence / 2, values.size - 1) * values.std(ddof=1) / math.sqrt(values.size))
    return Interval(speedup=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))


def is_clear_loser(pair_log_ratios: Sequence[float], confidence: float, win_threshold: float) -> bool:
    """True when timing may stop because the candidate will not win.

    From the third pair on: the interval's upper end lies below the threshold. Stopping here can only turn a would-be
    win into a loss, never make one, so looking after every pair costs power and no false wins.
    """
    return len(pair_log_ratios) >= 3 and speedup_interval(pair_log_ratios, confidence).high < win_threshold


def agree(first: Interval, second: Interval, disagreement: float) -> bool:
    """Whether two measurements of one candidate tell the same story: within the share, or within both intervals."""
    apart = abs(math.log(first.speedup) - math.log(second.speedup))
    if apart <= math.log1p(disagreement):
        return True
    return first.low <= second.speedup <= first.high and second.low <= first.speedup <= second.high
