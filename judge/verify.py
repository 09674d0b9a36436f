"""Whether a candidate's numbers are right: an error budget relative to float64 truth and to an honest run.

For each element i of an output, with truth t (float64) and candidate c:

    scale_i = max(|t_i|, rms(t))          so that neither near-zero elements nor large ones decide alone
    e_i     = |c_i - t_i| / scale_i
    l2      = rms(c - t) / rms(t)         over the whole output

The candidate is right when max e_i <= tolerance and l2 <= l2_tolerance, with

    tolerance    = max(error_factor * max e_i of the honest run, floor)
    l2_tolerance = max(error_factor * l2 of the honest run, floor), at most 1/2, since zeros have an l2 of 1

The honest run is the reference in the task's own dtype on the same inputs; ``floor`` is some machine epsilons of that
dtype (or the task's own TOLERANCE where larger). The second rule matters when one ill-conditioned element gives the
honest run a large error: it must not license lower precision everywhere else. A pure absolute tolerance lets zeros
pass for small outputs (KernelBench issue 165); a pure relative one fails PyTorch itself. Comparisons are written so
that NaN never passes.

NaN, +inf and -inf must stand where the honest run has them. Where truth and honest run disagree on whether an element
is finite at all, each is right: the special value of the one, or the other's number within tolerance. Such elements
have no part in any rms: one that only float64 can hold would make every error vanish. Integers and bools are exact,
and again where truth and honest run differ (an argmax of what is a tie in float32 only) each is right.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from judge.memory import Array

CHUNK = 1 << 15
"""Elements compared at a time: what is derived from them stays in the cache, and a 4 GB tensor needs no second one."""

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""Machine epsilon by torch dtype name."""

MAX_L2 = 0.5
"""However inexact the honest run is: an output half of which is error says nothing."""

_TINY = float(np.finfo(np.float64).tiny)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    ok: bool
    max_error: float
    """Largest e_i seen, inf where a NaN or infinity stands where none belongs; l2 where only that was too large."""
    tolerance: float
    """What was allowed of it."""
    message: str = ""
    """Where and what, for the worst element; empty when ok."""


def to_float(array: NDArray[np.generic], dtype: str) -> NDArray[np.generic]:
    """Numbers of a buffer whose torch dtype is ``dtype``: bfloat16 arrives as uint16, the rest as it is."""
    if dtype == "bfloat16":
        return (array.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return array


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one output may be off by, from its truth and the honest run: the same for every candidate's answer."""

    truth: NDArray[np.generic]  # [...] float64, or the integer dtype
    honest: NDArray[np.generic]  # [...] in the task's dtype, bfloat16 widened
    rms: float
    """Root mean square of the truth, where both it and the honest run are finite."""
    tolerance: float
    l2_tolerance: float

    def check(self, output: Array) -> Comparison:
        """``check`` for what a process returned."""
        return check(to_float(output.data, output.dtype), self)


class OutputBudget(Protocol):
    """A Budget wherever its arrays lie."""

    @property
    def truth(self) -> Any: ...

    @property
    def tolerance(self) -> float: ...

    def check(self, output: Array) -> Comparison: ...


@dataclass(frozen=True, kw_only=True)
class _Errors:
    largest: float
    index: int
    """Of the largest."""
    l2: float


def make_budget(
    truth: NDArray[np.generic], honest: NDArray[np.generic], *, error_factor: float, floor: float
) -> Budget:
    """The budget of one output (the formula is the module's).

    Args:
        truth: [...] float64, or the integer dtype.
        honest: [...] in the task's dtype: the reference's own run (see ``to_float``).
        error_factor: how many times the honest run's error is allowed.
        floor: tolerance when the honest run is (nearly) exact; 0 for integers.

    Raises:
        ValueError: the two have unequal shapes.
    """
    _same_shape(honest, truth)
    if not np.issubdtype(truth.dtype, np.floating):
        return Budget(truth=truth, honest=honest, rms=0.0, tolerance=0.0, l2_tolerance=0.0)
    t, h = truth.reshape(-1), honest.reshape(-1)
    rms = _rms(t, h)
    errors = _errors(h, t, h, rms)
    return Budget(
        truth=truth,
        honest=honest,
        rms=rms,
        tolerance=max(error_factor * errors.largest, floor),
        l2_tolerance=min(max(error_factor * errors.l2, floor), MAX_L2),
    )


def check(candidate: NDArray[np.generic], budget: Budget) -> Comparison:
    """Compare a candidate's output with the truth; its dtype was checked before.

    Raises:
        ValueError: its shape is not the truth's.
    """
    _same_shape(candidate, budget.truth)
    c, t, h = (np.ascontiguousarray(a).reshape(-1) for a in (candidate, budget.truth, budget.honest))
    if not np.issubdtype(t.dtype, np.floating):
        return _compare_exact(c, t, h)
    errors = _errors(c, t, h, budget.rms)
    if errors.largest <= budget.tolerance and errors.l2 <= budget.l2_tolerance:
        return Comparison(ok=True, max_error=errors.largest, tolerance=budget.tolerance)
    index = errors.index
    misplaced = not np.isfinite(errors.largest)
    wanted = h[index] if misplaced or not np.isfinite(t[index]) else t[index]
    where = f"element {_where(index, np.shape(candidate))} is {float(c[index]):.6g}, should be {float(wanted):.6g}"
    if errors.largest <= budget.tolerance:
        return Comparison(
            ok=False,
            max_error=errors.l2,
            tolerance=budget.l2_tolerance,
            message=f"the output as a whole is too inexact (relative L2 error); the worst, {where}",
        )
    return Comparison(
        ok=False,
        max_error=errors.largest,
        tolerance=budget.tolerance,
        message=where + (" (NaN or infinity out of place)" if misplaced else ""),
    )


def compare(
    candidate: NDArray[np.generic],
    truth: NDArray[np.generic],
    honest: NDArray[np.generic],
    *,
    error_factor: float,
    floor: float,
) -> Comparison:
    """``make_budget`` and ``check`` in one, for a single answer."""
    return check(candidate, make_budget(truth, honest, error_factor=error_factor, floor=floor))


def _same_shape(given: NDArray[np.generic], truth: NDArray[np.generic]) -> None:
    if given.shape != truth.shape:  # numpy would broadcast
        raise ValueError(f"shape {given.shape} cannot be compared with the truth's {truth.shape}")


def _rms(t: NDArray[np.generic], h: NDArray[np.generic]) -> float:
    """Of t, where t and h are finite."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        parts = (t[start : start + CHUNK].astype(np.float64, copy=False) for start in range(0, t.size, CHUNK))
        squares = sum(float(np.einsum("i,i->", part, part)) for part in parts)  # not np.dot: its threads cost more
        if np.isfinite(squares + h.sum(dtype=np.float64)) and squares > _TINY / np.finfo(np.float64).eps:
            return float(np.sqrt(squares / t.size))
    return _careful_rms(t, h)


def _careful_rms(t: NDArray[np.generic], h: NDArray[np.generic]) -> float:
    """The same for special values, and for numbers whose squares leave float64's range: relative to the largest."""
    largest = max((float(np.abs(part).max()) for part in _ordinary_parts(t, h)), default=0.0)
    if largest == 0.0:
        return 0.0
    total, count = 0.0, 0
    for part in _ordinary_parts(t, h):
        total += float(np.square(part / largest).sum())
        count += part.size
    return largest * float(np.sqrt(total / count))


def _ordinary_parts(t: NDArray[np.generic], h: NDArray[np.generic]) -> Iterator[NDArray[np.float64]]:
    for start in range(0, t.size, CHUNK):
        part = t[start : start + CHUNK].astype(np.float64)
        part = part[np.isfinite(part) & np.isfinite(h[start : start + CHUNK])]
        if part.size:
            yield part


def _errors(c: NDArray[np.generic], t: NDArray[np.generic], h: NDArray[np.generic], rms: float) -> _Errors:
    """Largest e_i (inf for a NaN or infinity out of place), and l2."""
    worst, worst_index, squares, count = 0.0, 0, 0.0, 0
    least = max(rms, _TINY)
    inverse = 1 / least
    with np.errstate(all="ignore"):
        for start in range(0, t.size, CHUNK):
            part = slice(start, start + CHUNK)
            ts = t[part]
            distance = np.abs(c[part] - ts)  # float64, since the truth is
            scale = np.abs(ts)
            np.maximum(scale, least, out=scale)
            error = distance / scale
            distance *= inverse
            index = int(np.argmax(error))  # a NaN counts as the largest
            counted_here = error.size
            if not np.isfinite(error[index]) or not np.isfinite(h[part].sum(dtype=np.float64)):
                error, counted = _with_specials(error, c[part], ts, h[part], least)
                index = int(np.argmax(error))
                distance, counted_here = distance[counted], int(counted.sum())
            squares += float(np.einsum("i,i->", distance, distance))
            count += counted_here
            if error[index] > worst:
                worst, worst_index = float(error[index]), start + index
    return _Errors(largest=worst, index=worst_index, l2=float(np.sqrt(squares / count)) if count else 0.0)


def _with_specials(
    error: NDArray[np.float64],
    c: NDArray[np.generic],
    t: NDArray[np.generic],
    h: NDArray[np.generic],
    least: float,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Errors of a chunk that holds NaN or infinities (never NaN themselves), and which elements count for l2."""
    finite_c, finite_t, finite_h = np.isfinite(c), np.isfinite(t), np.isfinite(h)
    from_honest = np.abs(c.astype(np.float64) - h) / np.maximum(np.abs(h), least)
    number = np.where(finite_t, error, np.where(finite_h, from_honest, np.inf))
    special = np.where(finite_h, _same_special(c, t), _same_special(c, h))
    return np.where(finite_c, number, np.where(special, 0.0, np.inf)), finite_c & finite_t & finite_h


def _same_special(a: NDArray[np.generic], b: NDArray[np.generic]) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = (np.isnan(a) & np.isnan(b)) | (np.isinf(a) & (a == b))
    return same


def _compare_exact(c: NDArray[np.generic], t: NDArray[np.generic], h: NDArray[np.generic]) -> Comparison:
    different = np.flatnonzero((c != t) & (c != h))
    if different.size == 0:
        return Comparison(ok=True, max_error=0.0, tolerance=0.0)
    index = int(different[0])
    return Comparison(
        ok=False,
        max_error=float(abs(float(c[index]) - float(t[index]))),
        tolerance=0.0,
        message=f"{different.size} of {c.size} elements differ; number {index} is {c[index]}, should be {t[index]}",
    )


def _where(index: int, shape: tuple[int, ...]) -> str:
    return str([int(i) for i in np.unravel_index(index, shape)]) if shape else "[]"
