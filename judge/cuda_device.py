"""The GPU that the judge uses: what it is and what it can do at most."""

from __future__ import annotations

from functools import cache

import cupy

MEMORY_SLACK = 1.05
"""Peak bandwidth is computed from clock and bus width; measured copies stay some percent below."""


@cache
def architecture() -> str:
    """Such as "sm_90"."""
    return f"sm_{cupy.cuda.Device().compute_capability}"


@cache
def l2_bytes() -> int:
    return int(cupy.cuda.Device().attributes["L2CacheSize"])


@cache
def peak_bytes_per_second() -> float:
    """From memory clock (kHz, two transfers a cycle) and bus width (bits)."""
    attributes = cupy.cuda.Device().attributes
    return 2e3 * attributes["MemoryClockRate"] * attributes["GlobalMemoryBusWidth"] / 8 * MEMORY_SLACK


@cache
def peak_flops_per_second() -> float:
    """Of the tensor cores at their narrowest type: 8192 operations a cycle and multiprocessor on Hopper."""
    attributes = cupy.cuda.Device().attributes
    return 8192e3 * attributes["MultiProcessorCount"] * attributes["ClockRate"]


def describe() -> dict[str, str]:
    """For a verdict's hardware."""
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    return {
        "gpu": properties["name"].decode(),
        "compute_capability": cupy.cuda.Device().compute_capability,
        "cuda_driver": str(cupy.cuda.runtime.driverGetVersion()),
        "cupy": cupy.__version__,
    }


def free_bytes() -> int:
    """GPU memory that nobody holds, the judge's own unused pool included."""
    cupy.get_default_memory_pool().free_all_blocks()
    return int(cupy.cuda.runtime.memGetInfo()[0])


def total_bytes() -> int:
    """GPU memory in all."""
    return int(cupy.cuda.runtime.memGetInfo()[1])
