"""The error budget: what passes, what does not, and that NaN never does."""

from __future__ import annotations

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
