from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from archive.types import Record
from search.bandit import Arm, Pull, choose_arm, reward_of, summarise_arms

GOOD, BAD, DEAR = Arm("edit", "a"), Arm("vanilla", "a"), Arm("edit", "b")


def pulls(arm: Arm, count: int, reward: float, cost: float = 0.0) -> list[Pull]:
    return [Pull(arm=arm, reward=reward, cost=cost)] * count


def test_reward_by_hand(make_record: Callable[..., Record]) -> None:
    assert reward_of(make_record(0.0), 1.5) == 0
    assert reward_of(make_record(1.2), 1.5) == pytest.approx(0.1)
    assert reward_of(make_record(3.0), 1.5) == pytest.approx(1.0)
    assert reward_of(make_record(12.0), 1.5) == pytest.approx(1.0)
    assert reward_of(make_record(2**0.5), 0.0) == pytest.approx(0.1 + 0.9 * 0.5)


def test_arms_never_pulled_come_first() -> None:
    rng = np.random.default_rng(0)
    assert {choose_arm([GOOD, BAD], pulls(GOOD, 50, 1.0), rng) for _ in range(20)} == {BAD}


def test_draws_have_the_distribution_of_two_betas() -> None:
    """P(GOOD > BAD) for Beta(1 + 3, 1 + 1) against Beta(1 + 1, 1 + 3), by numerical integration."""
    from scipy.stats import beta

    grid = np.linspace(0, 1, 20001)
    density, below = beta.pdf(grid, 4, 2), beta.cdf(grid, 2, 4)
    expected = float(np.sum(density * below) * (grid[1] - grid[0]))
    seen = [*pulls(GOOD, 3, 1.0), *pulls(GOOD, 1, 0.0), *pulls(BAD, 1, 1.0), *pulls(BAD, 3, 0.0)]
    rng = np.random.default_rng(1)
    share = sum(choose_arm([GOOD, BAD], seen, rng) == GOOD for _ in range(4000)) / 4000
    assert share == pytest.approx(expected, abs=0.02)  # three standard errors are 0.012


def test_equal_reward_at_a_tenth_of_the_cost_is_preferred() -> None:
    seen = [*pulls(GOOD, 30, 0.5, cost=0.01), *pulls(DEAR, 30, 0.5, cost=0.1)]
    rng = np.random.default_rng(2)
    assert Counter(choose_arm([GOOD, DEAR], seen, rng) for _ in range(200))[GOOD] > 190


def test_in_the_long_run_the_best_arm_is_pulled_most() -> None:
    """True means 0.6, 0.3 at equal cost: after 400 pulls most were of the better arm."""
    rng, seen = np.random.default_rng(3), list[Pull]()
    means = {GOOD: 0.6, BAD: 0.3}
    for _ in range(400):
        arm = choose_arm([GOOD, BAD], seen, rng)
        seen.append(Pull(arm=arm, reward=float(rng.random() < means[arm]), cost=1.0))
    assert Counter(pull.arm for pull in seen)[GOOD] > 320
    summary = summarise_arms(seen)
    assert summary[0].arm == GOOD
    assert sum(one.pulls for one in summary) == 400
