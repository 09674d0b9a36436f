"""Whether the GPU is the judge's alone while it times, and how fast its clock runs.

SIGSTOP halts a process and not the kernels that it has launched. One that takes torch's waits away could leave kernels
running for the time of the baseline, or let a stream wait for the judge's next write and burn then: contexts share a
GPU by slices of time, so the baseline would be slowed. Before each timed batch a single thread of the judge's reads
the GPU's clock for longer than such a slice; if it was not running all the time, somebody else was.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import cupy
import numpy as np

from judge.cuda_memory import synchronize

_PROBE_NANOSECONDS = 6_000_000
"""Three slices of a GPU that several contexts use (2 ms, the driver's default)."""
_GAP_NANOSECONDS = 100_000
"""A thread that runs reads the clock every microsecond; to change the context takes longer than this."""
_PATIENCE_SECONDS = 1.0
_SLOWED = 0x4 | 0x8 | 0x20 | 0x40 | 0x80
"""NVML's reasons for a lower clock: power cap, hardware slowdown, heat (software, hardware), power brake."""

_SOURCE = r"""
extern "C" __global__ void longest_gap(long long nanoseconds, long long* gap) {
    long long begin, last, now, most = 0;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    last = begin;
    do {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - last > most) most = now - last;
        last = now;
    } while (now - begin < nanoseconds);
    *gap = most;
}
"""


@cache
def _probe() -> tuple[Any, Any]:
    return cupy.RawKernel(_SOURCE, "longest_gap"), cupy.zeros(1, np.int64)


def is_alone() -> bool:
    """Whether nobody else's kernels ran on the GPU during the probe's six milliseconds."""
    kernel, gap = _probe()
    kernel((1,), (1,), (np.int64(_PROBE_NANOSECONDS), gap))
    synchronize()
    return int(gap[0]) < _GAP_NANOSECONDS


def await_quiet(seconds: float = _PATIENCE_SECONDS) -> bool:
    """Whether the GPU becomes the judge's alone within so many seconds."""
    end = time.monotonic() + seconds
    while not is_alone():
        if time.monotonic() > end:
            return False
    return True


@dataclass(frozen=True, kw_only=True)
class Clock:
    """The GPU's clock at one moment; zeros where NVML cannot be had."""

    mhz: int = 0
    """Of the multiprocessors."""
    slowed: bool = False
    """By heat or by a limit of power."""


@cache
def _nvml() -> tuple[Any, Any] | None:
    """(library, handle of the judge's GPU), or None."""
    try:
        library = ctypes.CDLL("libnvidia-ml.so.1")
        device = ctypes.c_void_p()
        bus = cupy.cuda.Device().pci_bus_id.encode()
        library.nvmlDeviceGetClockInfo, library.nvmlDeviceGetCurrentClocksThrottleReasons  # noqa: B018 - are they there?
        if library.nvmlInit_v2() or library.nvmlDeviceGetHandleByPciBusId_v2(bus, ctypes.byref(device)):
            return None
    except (OSError, AttributeError):
        return None
    return library, device


def read_clock() -> Clock:
    """Right after work, since an idle GPU lowers its clock."""
    found = _nvml()
    if found is None:
        return Clock()
    library, device = found
    mhz, reasons = ctypes.c_uint(), ctypes.c_ulonglong()
    if library.nvmlDeviceGetClockInfo(device, 1, ctypes.byref(mhz)):  # 1: of the multiprocessors
        return Clock()
    if library.nvmlDeviceGetCurrentClocksThrottleReasons(device, ctypes.byref(reasons)):
        reasons.value = 0
    return Clock(mhz=int(mhz.value), slowed=bool(reasons.value & _SLOWED))


def clocks_text(baseline: Sequence[Clock], candidate: Sequence[Clock]) -> str:
    """For a verdict's hardware, such as "1980" or "1710 to 1980, slowed by heat or power"."""
    both = [clock for clock in (*baseline, *candidate) if clock.mhz]
    if not both:
        return ""
    low, high = min(clock.mhz for clock in both), max(clock.mhz for clock in both)
    slowed = ", slowed by heat or power" if any(clock.slowed for clock in both) else ""
    return (str(low) if low == high else f"{low} to {high}") + slowed
