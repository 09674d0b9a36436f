from __future__ import annotations

import json

import numpy as np
import pytest

from learner.advantages import group_advantages
from learner.errors import LearnerError
from learner.rewards import SIGMA_FLOOR, RunningReward, overlong_penalty, raw_reward, turn_returns


def test_smoothing_by_hand():
    running = RunningReward(k=1.5)
    assert running.smooth_group("relu", [0.0, 2.0]) == [-1.0, 1.0]  # mu 1, sigma 1
    # all rewards so far: 0, 2, 10 -> mu 4, sigma sqrt(56 / 3) = 4.3205, (10 - 4) / 4.3205 = 1.3887
    assert running.smooth("relu", 10.0) == pytest.approx(1.38873, abs=1e-5)
    # 0, 2, 10, 100 -> mu 28, sigma 41.737: 1.725 is clipped
    assert running.smooth("relu", 100.0) == 1.5


def test_smoothing_equals_numpy_over_everything_seen():
    rng = np.random.default_rng(0)
    running = RunningReward(k=0.8)
    seen: list[float] = []
    for _ in range(20):
        group = rng.gamma(1.0, 1.0, size=4)
        seen.extend(group)
        expected = np.clip((group - np.mean(seen)) / np.std(seen), -0.8, 0.8)
        np.testing.assert_allclose(running.smooth_group("t", list(group)), expected, rtol=1e-10)


def test_tasks_do_not_mix():
    running = RunningReward(k=1.5)
    running.smooth_group("a", [100.0, 200.0])
    assert running.smooth_group("b", [0.0, 2.0]) == [-1.0, 1.0]
    assert running.mean("a") == 150.0
    assert running.mean("c") is None


def test_equal_rewards_smooth_to_zero_and_noise_is_not_magnified():
    running = RunningReward(k=1.5)
    assert running.smooth_group("t", [1.0, 1.0, 1.0]) == [0.0, 0.0, 0.0]
    noise = SIGMA_FLOOR / 10
    assert max(abs(r) for r in RunningReward(k=1.5).smooth_group("t", [1.0, 1.0 + noise])) < 0.1


def test_state_survives_json_bit_for_bit():
    running = RunningReward(k=1.5)
    running.smooth_group("t", [0.1, 0.7, 1 / 3])
    again = RunningReward.from_state(json.loads(json.dumps(running.state())))
    assert again.smooth_group("t", [0.2, 1.9]) == running.smooth_group("t", [0.2, 1.9])
    assert again.state() == running.state()


def test_raw_reward_is_the_speedup_and_zero_when_wrong():
    assert raw_reward("win", 2.5, {}) == 2.5
    assert raw_reward("correct", 0.8, {"correct": 9.0}) == 0.8
    assert [raw_reward(s, 0.0, {}) for s in ("incorrect", "compile_error", "unparsed", "rejected")] == [0.0] * 4


def test_partial_credit_goes_by_status_then_by_parsed():
    credit = {"parsed": 0.02, "incorrect": 0.1}
    assert raw_reward("incorrect", 0.0, credit) == 0.1
    assert raw_reward("compile_error", 0.0, credit) == 0.02
    assert raw_reward("unparsed", 0.0, credit) == 0.0
    assert raw_reward("rejected", 0.0, credit) == 0.0


def test_a_judge_error_is_never_a_reward():
    with pytest.raises(LearnerError, match="judge_error"):
        raw_reward("judge_error", 0.0, {"judge_error": 1.0})


def test_advantages_by_hand():
    rewards = np.array([0.0, 1.0, 2.0, 5.0])  # mean 2, deviations -2 -1 0 3, variance 14 / 3
    np.testing.assert_allclose(group_advantages(rewards, "dr_grpo"), [-2, -1, 0, 3])
    np.testing.assert_allclose(group_advantages(rewards, "grpo"), np.array([-2, -1, 0, 3]) / 2.160247, rtol=1e-5)
    # leave one out: 0 - 8/3, 1 - 7/3, 2 - 2, 5 - 1
    np.testing.assert_allclose(group_advantages(rewards, "rloo"), [-8 / 3, -4 / 3, 0, 4])


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_advantages_of_equal_rewards_and_of_a_group_of_one_are_zero(kind):
    # 0.1 summed three times has a rounding error that a division by std would blow up to order one
    np.testing.assert_array_equal(group_advantages(np.array([0.1, 0.1, 0.1]), kind), [0, 0, 0])
    np.testing.assert_array_equal(group_advantages(np.array([3.0]), kind), [0])


@pytest.mark.parametrize("kind", ["grpo", "dr_grpo", "rloo"])
def test_advantages_sum_to_zero_and_ignore_a_shift(kind):
    rewards = np.random.default_rng(3).normal(size=8)
    advantages = group_advantages(rewards, kind)
    assert abs(advantages.sum()) < 1e-9
    np.testing.assert_allclose(group_advantages(rewards + 7.0, kind), advantages, atol=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_advantages_equal_another_way_of_computing_them(seed):
    rng = np.random.default_rng(seed)
    rewards = rng.gamma(1.0, 1.0, size=int(rng.integers(2, 17)))
    size = len(rewards)
    mean = sum(rewards) / size
    spread = (sum((r - mean) ** 2 for r in rewards) / (size - 1)) ** 0.5
    others = [np.delete(rewards, i).mean() for i in range(size)]
    np.testing.assert_allclose(group_advantages(rewards, "grpo"), (rewards - mean) / (spread + 1e-6), rtol=1e-9)
    np.testing.assert_allclose(group_advantages(rewards, "dr_grpo"), rewards - mean, atol=1e-12)
    np.testing.assert_allclose(group_advantages(rewards, "rloo"), rewards - np.array(others), atol=1e-12)


def test_the_penalty_of_long_answers_by_hand_and_by_interpolation():
    assert [overlong_penalty(n, 128, 64) for n in (1, 64, 80, 96, 128, 500)] == [0.0, 0.0, -0.25, -0.5, -1.0, -1.0]
    lengths = np.arange(1, 300)
    expected = np.interp(lengths, [150, 200], [0.0, -1.0])
    np.testing.assert_allclose([overlong_penalty(int(n), 200, 50) for n in lengths], expected, atol=1e-12)


def test_returns_of_turns_by_hand():
    # 0.4: the third turn's 2 reaches the second as 0.8 and the first as 0.32
    assert turn_returns([0.0, 1.0, 2.0], 0.4) == pytest.approx([0.0 + 0.4 + 0.32, 1.0 + 0.8, 2.0])
    assert turn_returns([0.0, 1.0, 2.0], 0.4, "max") == pytest.approx([0.4, 1.0, 2.0])
    assert turn_returns([3.0, 1.0, 2.0], 0.0) == [3.0, 1.0, 2.0]
    assert turn_returns([3.0, 1.0, 2.0], 0.0, "max") == [3.0, 1.0, 2.0]
    # a turn without a verdict earns nothing, and is a turn in between all the same
    assert turn_returns([1.0, None, 4.0], 0.5) == [2.0, None, 4.0]
    assert turn_returns([], 0.5) == [] and turn_returns([None], 0.5) == [None] and turn_returns([0.3], 0.4) == [0.3]


@pytest.mark.parametrize("discount", [0.0, 0.4, 1.0])
def test_returns_equal_the_recursion_from_the_end(discount):
    rewards = list(np.random.default_rng(3).normal(size=7))
    expected, after = [], 0.0
    for reward in reversed(rewards):
        after = reward + discount * after
        expected.insert(0, after)
    assert turn_returns(rewards, discount) == pytest.approx(expected)
