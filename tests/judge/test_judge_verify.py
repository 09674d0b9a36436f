"""The error budget: what passes, what does not, and that NaN never does."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch

from judge.verify import CHUNK, EPSILON, check, compare, make_budget, to_float

FLOOR = 64 * EPSILON["float32"]


def budgeted(truth: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return truth, truth.astype(np.float32)


def test_a_hand_computed_error_and_tolerance() -> None:
    truth = np.array([3.0, 4.0])  # rms = sqrt(12.5) = 3.5355
    honest = np.array([3.0, 4.002], np.float32)  # scaled error .002 / 4 = 5e-4
    result = compare(np.array([3.001, 4.0], np.float32), truth, honest, error_factor=4, floor=FLOOR)
    assert result.ok
    assert result.tolerance == pytest.approx(4 * 5e-4, rel=1e-3)
    assert result.max_error == pytest.approx(0.001 / np.sqrt(12.5), rel=1e-3)


def test_zeros_fail_however_small_the_truth_is() -> None:
    """KernelBench issue 165: softmax over 393216 columns has outputs below any absolute tolerance."""
    truth, honest = budgeted(np.full(10_000, 1 / 393216))
    assert not compare(np.zeros(10_000, np.float32), truth, honest, error_factor=4, floor=FLOOR).ok
    assert compare(honest, truth, honest, error_factor=4, floor=FLOOR).ok


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_special_value_out_of_place_fails_and_is_named(bad: float) -> None:
    truth, honest = budgeted(np.linspace(1, 2, 3 * CHUNK + 5))
    wrong = honest.copy()
    wrong[2 * CHUNK + 7] = bad
    result = compare(wrong, truth, honest, error_factor=4, floor=FLOOR)
    assert not result.ok
    assert result.max_error == np.inf
    assert f"[{2 * CHUNK + 7}]" in result.message
    assert not compare(np.full_like(honest, bad), truth, honest, error_factor=4, floor=FLOOR).ok


def test_special_values_pass_where_the_honest_run_has_them_and_only_there() -> None:
    truth = np.array([1.0, -np.inf, np.inf, np.nan, 2.0])
    honest = truth.astype(np.float32)
    assert compare(honest.copy(), truth, honest, error_factor=4, floor=FLOOR).ok
    for index, value in ((1, np.inf), (2, 1.0), (3, 0.0), (1, np.nan), (0, np.nan)):
        wrong = honest.copy()
        wrong[index] = value
        assert not compare(wrong, truth, honest, error_factor=4, floor=FLOOR).ok, (index, value)


def test_where_the_dtype_overflows_the_number_and_the_infinity_are_both_right() -> None:
    truth = np.array([1e39, 1.0])
    honest = np.array([np.inf, 1.0], np.float32)
    assert compare(np.array([np.inf, 1.0], np.float32), truth, honest, error_factor=4, floor=FLOOR).ok
    assert not compare(np.array([-np.inf, 1.0], np.float32), truth, honest, error_factor=4, floor=FLOOR).ok


@pytest.mark.parametrize("size", [4, CHUNK + 3])
@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_one_element_that_only_float64_finds_special_excuses_no_other(special: float, size: int) -> None:
    """A float64 0/0 where float32 rounding left a remainder: that element is open, the rest is not."""
    truth = np.linspace(1, 2, size)
    honest = truth.astype(np.float32)
    truth[1] = special
    for right in (special, honest[1]):
        answer = honest.copy()
        answer[1] = right
        assert compare(answer, truth, honest, error_factor=4, floor=FLOOR).ok, right
    for index, value in ((1, 7.0), (1, -special if special == special else np.inf), (0, 0.0), (size - 1, 0.0)):
        answer = honest.copy()
        answer[index] = value
        result = compare(answer, truth, honest, error_factor=4, floor=FLOOR)
        assert not result.ok, (index, value)
        assert f"[{index}]" in result.message
    assert not compare(np.zeros(size, np.float32), truth, honest, error_factor=4, floor=FLOOR).ok


@pytest.mark.parametrize("huge", [1e60, 1e200, 1e308])
def test_one_element_that_only_float64_can_hold_does_not_drown_the_others(huge: float) -> None:
    truth = np.array([1.0, huge, 2.0, 3.0])
    honest = np.array([1.0, np.inf, 2.0, 3.0], np.float32)
    assert compare(honest.copy(), truth, honest, error_factor=4, floor=FLOOR).ok
    assert not compare(np.array([0, np.inf, 0, 0], np.float32), truth, honest, error_factor=4, floor=FLOOR).ok


@pytest.mark.parametrize("size", [1e-200, 1e-160, 1.0, 1e160, 1e300])
def test_the_verdict_does_not_depend_on_the_unit(size: float) -> None:
    """float64 outputs whose squares leave float64's range."""
    truth = np.array([3.0, -4.0, 5.0]) * size
    floor = 64 * EPSILON["float64"]
    assert compare(truth * (1 + 1e-15), truth, truth, error_factor=4, floor=floor).ok
    assert not compare(truth * (1 + 1e-12), truth, truth, error_factor=4, floor=floor).ok
    assert not compare(np.zeros(3), truth, truth, error_factor=4, floor=floor).ok


def test_one_ill_conditioned_element_does_not_license_lower_precision() -> None:
    rng = np.random.default_rng(0)
    truth, honest = budgeted(rng.normal(size=10_000))
    honest[7] += 0.01
    rounded = torch.from_numpy(truth).bfloat16().float().numpy()
    result = compare(rounded, truth, honest, error_factor=4, floor=FLOOR)
    expected = np.linalg.norm(rounded - truth) / np.linalg.norm(truth)
    assert not result.ok
    assert "as a whole" in result.message
    assert result.max_error == pytest.approx(expected)
    assert result.tolerance == pytest.approx(4 * np.linalg.norm(honest - truth) / np.linalg.norm(truth))


def test_zeros_fail_even_where_the_honest_run_is_mostly_noise() -> None:
    rng = np.random.default_rng(0)
    truth, honest = budgeted(rng.normal(size=1000))
    noisy = honest + rng.normal(size=1000).astype(np.float32) * 0.4
    assert compare(noisy, truth, noisy, error_factor=4, floor=FLOOR).ok
    assert not compare(np.zeros(1000, np.float32), truth, noisy, error_factor=4, floor=FLOOR).ok


@pytest.mark.parametrize(("given", "wanted"), [((1,), (5,)), ((5, 1), (5,)), ((), (3,)), ((3, 2), (2, 3))])
def test_nothing_is_broadcast(given: tuple[int, ...], wanted: tuple[int, ...]) -> None:
    truth, honest = budgeted(np.ones(wanted))
    with pytest.raises(ValueError, match="shape"):
        compare(np.ones(given, np.float32), truth, honest, error_factor=4, floor=FLOOR)


def test_where_truth_and_honest_run_break_a_tie_differently_both_are_right() -> None:
    truth, honest = np.array([3, 1, 2]), np.array([3, 0, 2])
    for answer in (truth, honest):
        assert compare(answer.copy(), truth, honest, error_factor=4, floor=0).ok
    assert not compare(np.array([3, 2, 2]), truth, honest, error_factor=4, floor=0).ok


def test_large_tensors_need_little_memory_of_their_own() -> None:
    truth, honest = budgeted(np.ones(1 << 22))  # 32 MB of truth
    budget = make_budget(truth, honest, error_factor=4, floor=FLOOR)
    tracemalloc.start()
    try:
        assert check(honest, budget).ok
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20


def test_integers_and_bools_are_exact() -> None:
    truth = np.arange(10)
    assert compare(truth.copy(), truth, truth, error_factor=4, floor=0).ok
    off = truth.copy()
    off[3] += 1
    assert "number 3 is 4, should be 3" in compare(off, truth, truth, error_factor=4, floor=0).message
    flags = np.array([True, False])
    assert not compare(~flags, flags, flags, error_factor=4, floor=0).ok


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 3, 4)])
def test_any_shape_passes_against_itself(shape: tuple[int, ...]) -> None:
    truth = np.random.default_rng(0).normal(size=shape)
    honest = truth.astype(np.float32)
    assert compare(honest, truth, honest, error_factor=4, floor=FLOOR).ok


def test_an_all_zero_truth_accepts_zeros_only() -> None:
    truth, honest = budgeted(np.zeros(5))
    assert compare(honest, truth, honest, error_factor=4, floor=FLOOR).ok
    assert not compare(honest + 1e-30, truth, honest, error_factor=4, floor=FLOOR).ok


def test_bfloat16_bits_are_read_as_torch_reads_them() -> None:
    values = torch.randn(1000).bfloat16()
    bits = values.view(torch.int16).numpy().view(np.uint16)
    assert np.array_equal(to_float(bits, "bfloat16"), values.float().numpy())


@pytest.mark.parametrize("downgrade", [torch.bfloat16, torch.float16])
def test_a_matmul_in_lower_precision_fails_and_one_in_another_order_passes(downgrade: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(64, 512), torch.randn(512, 64)
    truth = (a.double() @ b.double()).numpy()
    honest = (a @ b).numpy()
    budget = make_budget(truth, honest, error_factor=4, floor=FLOOR)
    another_order = sum((a[:, k : k + 1] @ b[k : k + 1] for k in range(512)), torch.zeros(64, 64))
    assert check(another_order.numpy(), budget).ok
    assert not check((a.to(downgrade) @ b.to(downgrade)).float().numpy(), budget).ok
