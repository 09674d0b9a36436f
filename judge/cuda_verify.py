"""judge/verify.py's rules for outputs that lie on the GPU: the same formulas, one pass over memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from judge.cuda_memory import Stores, note_difference
from judge.memory import Array
from judge.verify import EPSILON, MAX_L2, Comparison

_BLOCKS, _THREADS = 1056, 256
_SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>
__device__ double wide(double x) { return x; }
__device__ double wide(float x) { return x; }
__device__ double wide(__half x) { return __half2float(x); }
__device__ double wide(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ long long first() { return blockIdx.x * (long long)blockDim.x + threadIdx.x; }
__device__ long long step() { return (long long)gridDim.x * blockDim.x; }

__device__ bool same_special(double a, double b) { return (isnan(a) && isnan(b)) || (isinf(a) && a == b); }

// For each block: largest scaled error and where, sum of squared scaled distances over ordinary elements, their count.
template <typename C, typename T>
__device__ void compare(const C* c, const T* t, const C* h, long long n, double rms,
                        double* worst, long long* where, double* squares, long long* counts) {
    const double least = rms > 0 ? rms : 2.2250738585072014e-308;
    double most = -1, sum = 0;
    long long at = 0, count = 0;
    for (long long i = first(); i < n; i += step()) {
        double x = wide(c[i]), truth = wide(t[i]), honest = wide(h[i]), e;
        bool fx = isfinite(x), ft = isfinite(truth), fh = isfinite(honest);
        if (fx && ft && fh) {
            double d = (x - truth) / least;
            sum += d * d;
            count++;
            e = fabs(x - truth) / fmax(fabs(truth), least);
        } else if (fx) {
            e = ft ? fabs(x - truth) / fmax(fabs(truth), least)
                   : fh ? fabs(x - honest) / fmax(fabs(honest), least) : 1.0 / 0.0;
        } else {
            bool right = fh ? same_special(x, truth) : same_special(x, honest);
            e = right ? 0.0 : 1.0 / 0.0;
        }
        if (!(e <= most)) { most = e; at = i; }
    }
    __shared__ double sm[256], ss[256];
    __shared__ long long sa[256], sc[256];
    int k = threadIdx.x;
    sm[k] = most; sa[k] = at; ss[k] = sum; sc[k] = count;
    __syncthreads();
    for (int w = 128; w > 0; w >>= 1) {
        if (k < w) {
            if (!(sm[k + w] <= sm[k])) { sm[k] = sm[k + w]; sa[k] = sa[k + w]; }
            ss[k] += ss[k + w];
            sc[k] += sc[k + w];
        }
        __syncthreads();
    }
    int b = blockIdx.x;
    if (k == 0) { worst[b] = sm[0]; where[b] = sa[0]; squares[b] = ss[0]; counts[b] = sc[0]; }
}

template <typename C, typename T>
__device__ void square(const T* t, const C* h, long long n, double scale, double* largest, double* squares,
                       long long* counts) {
    double most = 0, sum = 0;
    long long count = 0;
    for (long long i = first(); i < n; i += step()) {
        double truth = wide(t[i]);
        if (isfinite(truth) && isfinite(wide(h[i]))) {
            most = fmax(most, fabs(truth));
            sum += truth / scale * (truth / scale);
            count++;
        }
    }
    __shared__ double sm[256], ss[256];
    __shared__ long long sc[256];
    int k = threadIdx.x;
    sm[k] = most; ss[k] = sum; sc[k] = count;
    __syncthreads();
    for (int w = 128; w > 0; w >>= 1) {
        if (k < w) { sm[k] = fmax(sm[k], sm[k + w]); ss[k] += ss[k + w]; sc[k] += sc[k + w]; }
        __syncthreads();
    }
    if (k == 0) { largest[blockIdx.x] = sm[0]; squares[blockIdx.x] = ss[0]; counts[blockIdx.x] = sc[0]; }
}

#define BOTH(NAME, C, T) \
    extern "C" __global__ void compare_##NAME(const C* c, const T* t, const C* h, long long n, double rms, \
        double* worst, long long* where, double* squares, long long* counts) { \
        compare(c, t, h, n, rms, worst, where, squares, counts); \
    } \
    extern "C" __global__ void square_##NAME(const T* t, const C* h, long long n, double scale, double* largest, \
        double* squares, long long* counts) { square(t, h, n, scale, largest, squares, counts); }
#define SAME(NAME, C) \
    extern "C" __global__ void compare_same_##NAME(const C* c, const C* t, const C* h, long long n, double rms, \
        double* worst, long long* where, double* squares, long long* counts) { \
        compare(c, t, h, n, rms, worst, where, squares, counts); \
    }
SAME(float16, __half)
SAME(bfloat16, __nv_bfloat16)
SAME(float32, float)
SAME(float64, double)
BOTH(float16, __half, double)
BOTH(bfloat16, __nv_bfloat16, double)
BOTH(float32, float, double)
BOTH(float64, double, double)
"""


@dataclass(frozen=True, kw_only=True)
class DeviceBudget:
    """judge.verify.Budget with its arrays on the GPU.

    A budget for a timed call has no float64 truth: the honest run stands for it, and since that was itself within the
    tolerance divided by the error factor, an answer within ``tolerance`` of it is within 1.25 times that of the truth.
    """

    truth: Any  # cupy [...] float64, or the integer dtype; the honest run itself in timed calls
    honest: Any  # cupy [...] in the task's dtype (bfloat16 by its bits)
    dtype: str
    rms: float
    tolerance: float
    l2_tolerance: float

    def check(self, output: Array) -> Comparison:
        """``check`` for what a process returned."""
        return check(output, self)


@dataclass(frozen=True, kw_only=True)
class _Errors:
    largest: float
    index: int
    l2: float


def make_budget(truth: Array, honest: Array, *, error_factor: float, floor: float) -> DeviceBudget:
    """The budget of one output (formula: judge/verify.py). Raises ValueError: unequal shapes."""
    if truth.data.shape != honest.data.shape:
        raise ValueError(f"shape {honest.data.shape} cannot be compared with the truth's {truth.data.shape}")
    if honest.dtype not in EPSILON:
        return DeviceBudget(
            truth=truth.data, honest=honest.data, dtype=honest.dtype, rms=0.0, tolerance=0.0, l2_tolerance=0.0
        )
    rms = _rms(truth.data, honest.data, honest.dtype)
    errors = _errors(honest.data, truth.data, honest.data, honest.dtype, rms)
    return DeviceBudget(
        truth=truth.data,
        honest=honest.data,
        dtype=honest.dtype,
        rms=rms,
        tolerance=max(error_factor * errors.largest, floor),
        l2_tolerance=min(max(error_factor * errors.l2, floor), MAX_L2),
    )


def timed_budget(honest: Array, like: Any) -> DeviceBudget:
    """A budget around an honest run alone, as wide as another one of the same output."""
    return DeviceBudget(
        truth=honest.data,
        honest=honest.data,
        dtype=honest.dtype,
        rms=like.rms,
        tolerance=like.tolerance,
        l2_tolerance=like.l2_tolerance,
    )


def check_all(stores: Stores, cases: Sequence[Any]) -> int | None:
    """The first call (the number of its case) one of whose outputs is wrong, with timed budgets; None when all are
    right. One wait for all."""
    pending = [
        (number, output, budget)
        for number, case in enumerate(cases)
        for output, budget in zip(stores.outputs(number), case.budgets, strict=True)
    ]
    if not pending:
        return None
    worst, squares = (cupy.zeros((len(pending), _BLOCKS)) for _ in range(2))
    where, counts = (cupy.zeros((len(pending), _BLOCKS), cupy.int64) for _ in range(2))
    different = cupy.zeros(len(pending), cupy.int32)
    for row, (_, output, budget) in enumerate(pending):
        if output.nbytes == 0:
            continue
        if budget.dtype not in EPSILON:
            note_difference(output.data.data.ptr, budget.honest.data.ptr, output.nbytes, different[row:])
            continue
        same = budget.truth is budget.honest
        blocks, n = _blocks(output.data.size), np.int64(output.data.size)
        _kernel(f"compare_{'same_' if same else ''}{budget.dtype}")(
            (blocks,),
            (_THREADS,),
            (output.data, budget.truth, budget.honest, n, np.float64(budget.rms),
             worst[row], where[row], squares[row], counts[row]),
        )  # fmt: skip
    errors = cupy.where(cupy.isnan(worst), cupy.inf, worst).max(axis=1).get()
    l2 = np.sqrt(squares.sum(axis=1).get() / np.maximum(counts.sum(axis=1).get(), 1))
    changed = different.get()
    for row, (number, _, budget) in enumerate(pending):
        right = errors[row] <= budget.tolerance and l2[row] <= budget.l2_tolerance
        if changed[row] or (budget.dtype in EPSILON and not right):
            return number
    return None


def check(candidate: Array, budget: DeviceBudget) -> Comparison:
    """Compare a candidate's output with the truth; dtype and shape were checked before."""
    c, t, h = candidate.data, budget.truth, budget.honest
    if budget.dtype not in EPSILON:
        return _compare_exact(c, t, h)
    if t is h:
        t = _wide(Array(dtype=budget.dtype, data=h))
    errors = _errors(c, t, h, budget.dtype, budget.rms)
    if errors.largest <= budget.tolerance and errors.l2 <= budget.l2_tolerance:
        return Comparison(ok=True, max_error=errors.largest, tolerance=budget.tolerance)
    index = errors.index
    given = float(_wide(Array(dtype=budget.dtype, data=c)).reshape(-1)[index])
    right, honest = float(t.reshape(-1)[index]), float(_wide(Array(dtype=budget.dtype, data=h)).reshape(-1)[index])
    misplaced = not np.isfinite(errors.largest)
    wanted = honest if misplaced or not np.isfinite(right) else right
    place = [int(i) for i in np.unravel_index(index, c.shape)] if c.shape else []
    text = f"element {place} is {given:.6g}, should be {wanted:.6g}"
    if errors.largest <= budget.tolerance:
        text = f"the output as a whole is too inexact (relative L2 error); the worst, {text}"
        return Comparison(ok=False, max_error=errors.l2, tolerance=budget.l2_tolerance, message=text)
    return Comparison(
        ok=False,
        max_error=errors.largest,
        tolerance=budget.tolerance,
        message=text + (" (NaN or infinity out of place)" if misplaced else ""),
    )


def _wide(array: Array) -> Any:
    """As float64; bfloat16 by its bits."""
    if array.dtype == "bfloat16":
        return (array.data.astype(cupy.uint32) << 16).view(cupy.float32).astype(cupy.float64)
    return array.data.astype(cupy.float64)


def _compare_exact(c: Any, t: Any, h: Any) -> Comparison:
    different = (c != t) & (c != h)
    count = int(different.sum())
    if count == 0:
        return Comparison(ok=True, max_error=0.0, tolerance=0.0)
    index = int(different.reshape(-1).argmax())
    given, right = (float(x.reshape(-1)[index]) for x in (c, t))
    return Comparison(
        ok=False,
        max_error=abs(given - right),
        tolerance=0.0,
        message=f"{count} of {c.size} elements differ; number {index} is {given:g}, should be {right:g}",
    )


@cache
def _kernel(name: str) -> Any:
    module = cupy.RawModule(code=_SOURCE, options=("--std=c++17", *(f"-I{x}" for x in _include_folders())))
    return module.get_function(name)


def _include_folders() -> list[str]:
    from judge.load_cuda import include_folders

    return include_folders()


def _blocks(n: int) -> int:
    return max(1, min(_BLOCKS, -(-n // _THREADS)))


def _rms(t: Any, h: Any, dtype: str) -> float:
    """Of t, where t and h are finite; relative to the largest, so that no square leaves float64's range."""
    n = int(t.size)
    if n == 0:
        return 0.0
    blocks = _blocks(n)
    largest, squares = cupy.empty(blocks), cupy.empty(blocks)
    counts = cupy.empty(blocks, cupy.int64)
    kernel = _kernel(f"square_{dtype}")
    scale = 1.0
    for _ in range(2):
        kernel((blocks,), (_THREADS,), (t, h, np.int64(n), np.float64(scale), largest, squares, counts))
        count, total, most = int(counts.sum()), float(squares.sum()), float(largest.max())
        if count == 0 or most == 0.0:
            return 0.0
        if np.isfinite(total) and total > 1e-290:
            break
        scale = most
    return scale * float(np.sqrt(total / count))


def _errors(c: Any, t: Any, h: Any, dtype: str, rms: float) -> _Errors:
    n = int(c.size)
    if n == 0:
        return _Errors(largest=0.0, index=0, l2=0.0)
    blocks = _blocks(n)
    worst, squares = cupy.empty(blocks), cupy.empty(blocks)
    where, counts = cupy.empty(blocks, cupy.int64), cupy.empty(blocks, cupy.int64)
    c, t, h = (cupy.ascontiguousarray(x) for x in (c, t, h))
    _kernel(f"compare_{dtype}")(
        (blocks,), (_THREADS,), (c, t, h, np.int64(n), np.float64(rms), worst, where, squares, counts)
    )
    errors, places, sums, numbers = (x.get() for x in (worst, where, squares, counts))
    errors = np.where(np.isnan(errors), np.inf, errors)
    index = int(np.argmax(errors))
    count = int(numbers.sum())
    return _Errors(
        largest=float(errors[index]),
        index=int(places[index]),
        l2=float(np.sqrt(sums.sum() / count)) if count else 0.0,
    )
