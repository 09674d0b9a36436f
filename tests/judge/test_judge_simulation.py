"""The interval's real coverage, false wins and power under several kinds of noise: the judge's rule, simulated."""

from __future__ import annotations

import math

import numpy as np
import pytest

from judge.settings import JudgeSettings
from judge.simulation import Noise, Rates, judge_ratios, pair_ratios, rates, rates_of_spread
from judge.statistics import is_clear_loser, speedup_interval

SETTINGS = JudgeSettings()
RUNS = 20000
NOISES = {
    "one pinned thread": Noise(),
    "two threads": Noise(process_sd=0.095, call_sd=0.9),
    "disturbed calls": Noise(disturbed=0.3, slower=10.0),
    "heavy tails": Noise(tail=3.0),
    "a GPU": Noise(process_sd=0.002, call_sd=0.004),
}


def simulated(noise: Noise, true: float, pairs: int = SETTINGS.pairs, runs: int = RUNS, seed: int = 1) -> Rates:
    return rates(
        np.random.default_rng(seed), noise=noise, true_speedup=true, runs=runs, pairs=pairs, calls=SETTINGS.calls
    )


def test_the_simulated_rule_is_the_judges() -> None:
    """Run by run, with the functions that judge.timing uses."""
    ratios = pair_ratios(np.random.default_rng(3), noise=Noise(), true_speedup=1.03, runs=300, pairs=7, calls=20)
    wins = covered = used = 0
    for run in ratios:
        kept: list[float] = []
        for ratio in run:
            kept.append(float(ratio))
            if is_clear_loser(kept, 0.99, 1.01):
                break
        interval = speedup_interval(kept, 0.99)
        wins += interval.low > 1.01
        covered += interval.low <= 1.03 <= interval.high
        used += len(kept)
    found = judge_ratios(ratios, true_speedup=1.03, confidence=0.99, win_threshold=1.01)
    assert (found.wins, found.coverage, found.pairs) == pytest.approx((wins / 300, covered / 300, used / 300))


def test_pairs_spread_as_their_noise_says() -> None:
    """Var = 2 process_sd^2 + the median's: pi / 2 * 2 call_sd^2 / calls for many normal calls."""
    ratios = pair_ratios(np.random.default_rng(0), noise=Noise(), true_speedup=2.0, runs=20000, pairs=1, calls=200)
    expected = math.sqrt(2 * 0.028**2 + math.pi / 2 * 2 * 0.2**2 / 200)
    assert ratios.std() == pytest.approx(expected, rel=0.03)
    assert ratios.mean() == pytest.approx(math.log(2), abs=0.001)


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("pairs", [3, 4, 7, 15])
def test_at_most_one_in_a_hundred_equal_kernels_wins(name: str, pairs: int) -> None:
    assert simulated(NOISES[name], 1.0, pairs).wins <= 0.01


@pytest.mark.parametrize("name", NOISES)
def test_a_kernel_at_the_threshold_wins_at_most_once_in_a_hundred(name: str) -> None:
    """The rule's promise in its hardest case: truly 1.01, where half of the interval's misses are wins."""
    assert simulated(NOISES[name], 1.01).wins <= 0.01


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("true", [1.2, 2.0])
def test_the_interval_holds_the_truth_in_99_of_100(name: str, true: float) -> None:
    """Where nothing stops early; 20,000 runs have a standard error of .0007."""
    assert simulated(NOISES[name], true).coverage >= 0.985


@pytest.mark.parametrize("true", [0.5, 0.9, 1.0])
def test_early_stops_cost_losers_little_coverage(true: float) -> None:
    """A loser is let go after a low look, so its interval is a little too low more often; it is no win either way."""
    found = simulated(Noise(), true)
    assert found.coverage >= 0.97
    assert found.wins <= 0.01


def test_power_grows_with_the_speedup_and_with_the_pairs() -> None:
    few = [simulated(Noise(), true, 7, 5000).wins for true in (1.03, 1.05, 1.10, 1.20)]
    many = [simulated(Noise(), true, 15, 5000).wins for true in (1.03, 1.05, 1.10, 1.20)]
    assert few == sorted(few)
    assert all(more > less for more, less in zip(many[:3], few[:3], strict=True))
    assert few[3] > 0.85  # .886 in 20,000 runs
    quiet = rates_of_spread(np.random.default_rng(0), pair_sd=0.003, true_speedup=1.03, pairs=SETTINGS.cuda_pairs)
    assert quiet.wins > 0.9
    assert quiet.half_width < 0.02
