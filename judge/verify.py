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

CHUNK = 1 << 20
"""Elements compared at a time: a 4 GB tensor needs some tens of MB beside itself."""

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


def compare(
    candidate: NDArray[np.generic],
    truth: NDArray[np.generic],
    honest: NDArray[np.generic],
    *,
    error_factor: float,
    floor: float,
) -> Comparison:
    """Compare arrays of equal shape (dtype and shape were checked before); integers and bools must be equal.

    Args:
        candidate: [...] in the task's dtype (see ``to_float``).
        truth: [...] float64, or the integer dtype.
        honest: [...] in the task's dtype: the reference's own run.
        error_factor: how many times the honest run's error is allowed.
        floor: tolerance when the honest run is (nearly) exact; 0 for integers.
    """
    c, t, h = (np.ascontiguousarray(a).reshape(-1) for a in (candidate, truth, honest))
    if c.size == 0:
        return Comparison(ok=True, max_error=0.0, tolerance=floor)
    if not np.issubdtype(t.dtype, np.floating):
        return _compare_exact(c, t)
    rms = _rms(t)
    honest_error, _, _ = _largest_error(h, t, h, rms)
    tolerance = max(error_factor * honest_error, floor)
    error, index, why = _largest_error(c, t, h, rms)
    if error <= tolerance:
        return Comparison(ok=True, max_error=error, tolerance=tolerance)
    where = _where(index, np.shape(candidate))
    wanted = h[index] if why else t[index]
    return Comparison(
        ok=False,
        max_error=error,
        tolerance=tolerance,
        message=f"element {where} is {float(c[index]):.6g}, should be {float(wanted):.6g}{why}",
    )


def _rms(t: NDArray[np.generic]) -> float:
    total, count = 0.0, 0
    for start in range(0, t.size, CHUNK):
        part = t[start : start + CHUNK].astype(np.float64)
        part = part[np.isfinite(part)]
        total += float(np.dot(part, part))
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
    tiny = float(np.finfo(np.float64).tiny)
    for start in range(0, t.size, CHUNK):
        cs = c[start : start + CHUNK].astype(np.float64)
        ts = t[start : start + CHUNK].astype(np.float64)
        hs = h[start : start + CHUNK].astype(np.float64)
        special = ~np.isfinite(hs) | ~np.isfinite(cs)
        with np.errstate(all="ignore"):
            error = np.abs(cs - ts) / np.maximum(np.maximum(np.abs(ts), rms), tiny)
        if special.any():
            same = (np.isnan(cs) & np.isnan(hs)) | (np.isinf(cs) & (cs == hs))
            overflowed = np.isfinite(ts) & ~np.isfinite(hs) & np.isfinite(cs)
            error = np.where(special, np.where(same, 0.0, np.where(overflowed, error, np.inf)), error)
        index = int(np.argmax(error))
        if error[index] > worst:
            worst, worst_index = float(error[index]), start + index
            note = " (NaN or infinity out of place)" if special[index] else ""
    return worst, worst_index, note


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
