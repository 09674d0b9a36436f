"""Whether a candidate's numbers are right: an error budget relative to float64 truth and to an honest run.

For each element i of an output, with truth t (float64) and candidate c:

    scale_i = max(|t_i|, rms(t))          so that neither near-zero elements nor large ones decide alone
    e_i     = |c_i - t_i| / scale_i

The candidate is right when max e_i <= tolerance, with

    tolerance = max(error_factor * max e_i of the honest run, floor)

The honest run is the reference in the task's own dtype on the same inputs; ``floor`` is some machine epsilons of that
dtype (or the task's own TOLERANCE where larger). A pure absolute tolerance lets zeros pass for small outputs
(KernelBench issue 165); a pure relative one fails PyTorch itself. Comparisons are written ``not (e <= tolerance)``,
so NaN never passes. NaN, +inf and -inf must stand where the honest run has them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CHUNK = 1 << 15
"""Elements compared at a time: what is derived from them stays in the cache, and a 4 GB tensor needs no second one."""

EPSILON = {"float16": 2.0**-10, "bfloat16": 2.0**-7, "float32": 2.0**-23, "float64": 2.0**-52}
"""Machine epsilon by torch dtype name."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    ok: bool
    max_error: float
    """Largest e_i seen; inf where a NaN or infinity stands where none belongs."""
    tolerance: float
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
    """Root mean square of the finite truth."""
    tolerance: float


def make_budget(
    truth: NDArray[np.generic], honest: NDArray[np.generic], *, error_factor: float, floor: float
) -> Budget:
    """The budget of one output (the formula is the module's).

    Args:
        truth: [...] float64, or the integer dtype.
        honest: [...] in the task's dtype: the reference's own run (see ``to_float``).
        error_factor: how many times the honest run's error is allowed.
        floor: tolerance when the honest run is (nearly) exact; 0 for integers.
    """
    if not np.issubdtype(truth.dtype, np.floating):
        return Budget(truth=truth, honest=honest, rms=0.0, tolerance=0.0)
    rms = _rms(truth.reshape(-1))
    error, _, _ = _largest_error(honest.reshape(-1), truth.reshape(-1), honest.reshape(-1), rms)
    return Budget(truth=truth, honest=honest, rms=rms, tolerance=max(error_factor * error, floor))


def check(candidate: NDArray[np.generic], budget: Budget) -> Comparison:
    """Compare a candidate's output with the truth; shape and dtype were checked before. Integers and bools exactly."""
    c, t, h = (np.ascontiguousarray(a).reshape(-1) for a in (candidate, budget.truth, budget.honest))
    if not np.issubdtype(t.dtype, np.floating):
        return _compare_exact(c, t)
    error, index, why = _largest_error(c, t, h, budget.rms)
    if error <= budget.tolerance:
        return Comparison(ok=True, max_error=error, tolerance=budget.tolerance)
    wanted = h[index] if why else t[index]
    return Comparison(
        ok=False,
        max_error=error,
        tolerance=budget.tolerance,
        message=f"element {_where(index, np.shape(candidate))} is {float(c[index]):.6g}, "
        f"should be {float(wanted):.6g}{why}",
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


def _rms(t: NDArray[np.generic]) -> float:
    total, count = 0.0, 0
    for start in range(0, t.size, CHUNK):
        part = t[start : start + CHUNK].astype(np.float64)
        squares = float(np.square(part).sum())  # not np.dot: its threads cost more than they save
        if not np.isfinite(squares):
            part = part[np.isfinite(part)]
            squares = float(np.square(part).sum())
        total += squares
        count += part.size
    return float(np.sqrt(total / count)) if count else 0.0


def _largest_error(
    c: NDArray[np.generic], t: NDArray[np.generic], h: NDArray[np.generic], rms: float
) -> tuple[float, int, str]:
    """Largest scaled error, its index, and a note when it is a NaN or infinity out of place (error inf).

    Where the honest run overflowed though the truth is finite, both answers are right: the candidate may have the
    honest run's infinity or the truth's number.
    """
    worst, worst_index, note = 0.0, 0, ""
    least = max(rms, float(np.finfo(np.float64).tiny))
    with np.errstate(all="ignore"):
        for start in range(0, t.size, CHUNK):
            part = slice(start, start + CHUNK)
            ts = t[part]
            error = np.abs(c[part] - ts)  # float64, since the truth is
            error /= np.maximum(np.abs(ts), least)
            index = int(np.argmax(error))  # a NaN counts as the largest
            special = not np.isfinite(error[index]) or not np.isfinite(h[part].sum(dtype=np.float64))
            if special:
                error, odd = _with_specials(error, c[part], ts, h[part])
                index = int(np.argmax(error))
                special = bool(odd[index])
            if error[index] > worst:
                worst, worst_index = float(error[index]), start + index
                note = " (NaN or infinity out of place)" if special else ""
    return worst, worst_index, note


def _with_specials(
    error: NDArray[np.float64], c: NDArray[np.generic], t: NDArray[np.generic], h: NDArray[np.generic]
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Errors of a chunk that holds NaN or infinities, and where those are."""
    special = ~np.isfinite(h) | ~np.isfinite(c)
    same = (np.isnan(c) & np.isnan(h)) | (np.isinf(c) & (c == h))
    overflowed = np.isfinite(t) & ~np.isfinite(h) & np.isfinite(c)
    return np.where(special, np.where(same, 0.0, np.where(overflowed, error, np.inf)), error), special


def _compare_exact(c: NDArray[np.generic], t: NDArray[np.generic]) -> Comparison:
    different = np.flatnonzero(c != t)
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
