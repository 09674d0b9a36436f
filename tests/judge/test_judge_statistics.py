"""Intervals over process pairs: by hand, and by simulation with the noise that was measured."""

from __future__ import annotations

import math

import numpy as np
import pytest

from judge.settings import JudgeSettings
from judge.statistics import Interval, agree, is_clear_loser, pair_log_ratio, speedup_interval

SETTINGS = JudgeSettings()


def test_a_hand_computed_interval() -> None:
    """Mean .2, s = .1, K = 3, t(.995, 2) = 9.9248 (tables): half width 9.9248 * .1 / sqrt(3) = .57301."""
    interval = speedup_interval([0.1, 0.2, 0.3], 0.99)
    assert interval.speedup == pytest.approx(math.exp(0.2))
    assert interval.low == pytest.approx(math.exp(0.2 - 0.57301), rel=1e-4)
    assert interval.high == pytest.approx(math.exp(0.2 + 0.57301), rel=1e-4)


def test_the_median_of_a_pair_ignores_a_disturbed_call() -> None:
    assert pair_log_ratio([2.0, 2.0, 200.0], [1.0, 1.0, 1.0]) == pytest.approx(math.log(2))


@pytest.mark.parametrize("times", [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0]), ([math.nan], [1.0]), ([1.0], [-1.0])])
def test_impossible_times_are_refused(times: tuple[list[float], list[float]]) -> None:
    with pytest.raises(ValueError, match=r"times|calls"):
        pair_log_ratio(*times)


def test_one_pair_proves_nothing() -> None:
    interval = speedup_interval([1.0], 0.99)
    assert (interval.low, interval.high) == (0.0, math.inf)


def simulate(true: float, bias: float, noise: float, runs: int, seed: int) -> tuple[float, float]:
    """Share of wins, and share of intervals that hold the truth, with a bias of each process and noise of each call."""
    rng = np.random.default_rng(seed)
    wins = covered = 0
    for _ in range(runs):
        ratios: list[float] = []
        for _ in range(SETTINGS.pairs):
            own_bias = rng.normal(0, bias, 2)
            base = np.exp(np.log(true) + own_bias[0] + rng.normal(0, noise, SETTINGS.calls))
            cand = np.exp(own_bias[1] + rng.normal(0, noise, SETTINGS.calls))
            ratios.append(pair_log_ratio(base, cand))
            if is_clear_loser(ratios, SETTINGS.confidence, SETTINGS.win_threshold):
                break
        interval = speedup_interval(ratios, SETTINGS.confidence)
        wins += interval.low > SETTINGS.win_threshold
        covered += interval.low <= true <= interval.high
    return wins / runs, covered / runs


def test_a_kernel_against_itself_wins_at_most_once_in_a_hundred() -> None:
    """RECIPES' noise of one pinned thread: 2.8% between processes, 20% between calls."""
    wins, _ = simulate(1.0, 0.028, 0.20, 2000, 1)
    assert wins <= 0.01


def test_a_true_speedup_is_found_and_its_interval_holds_it() -> None:
    wins, covered = simulate(1.5, 0.028, 0.20, 500, 2)
    assert wins > 0.95
    assert covered >= 0.97  # 99% nominal; early stops of losers play no part at 1.5


def test_stopping_early_makes_no_wins() -> None:
    assert not is_clear_loser([-1.0, -1.0], 0.99, 1.01), "two pairs are too few"
    assert is_clear_loser([-0.5, -0.51, -0.52], 0.99, 1.01)
    assert not is_clear_loser([0.5, 0.51, 0.52], 0.99, 1.01)


def test_agreement_of_two_measurements() -> None:
    narrow = Interval(speedup=4.0, low=3.9, high=4.1)
    assert agree(narrow, Interval(speedup=4.3, low=4.2, high=4.4), 0.10)
    assert not agree(narrow, Interval(speedup=5.0, low=4.9, high=5.1), 0.10)
    assert agree(Interval(speedup=4.0, low=2.0, high=8.0), Interval(speedup=5.0, low=3.0, high=8.0), 0.10)
