"""What judge.api does otherwise on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

import cupy

from judge.cuda_device import free_bytes, l2_bytes, peak_bytes_per_second, peak_flops_per_second, total_bytes
from judge.cuda_player import CudaPlayer as CudaPlayer
from judge.cuda_reference import CudaReference as CudaReference
from judge.cuda_task import CudaTask
from judge.cuda_timing import CudaBank, make_bank
from judge.cuda_timing import time_candidate as time_candidate
from judge.process import Zygote
from judge.reference import Case
from judge.settings import JudgeSettings
from judge.timing import Timing, too_fast_for_products
from tasks.types import Task

ERRORS: tuple[type[Exception], ...] = (cupy.cuda.runtime.CUDARuntimeError, cupy.cuda.driver.CUDADriverError)
"""What CUDA raises in the judge's own process."""

SHORTEST_CALL_SECONDS = 7e-7
"""An empty kernel after another one in a CUDA graph takes a microsecond and more on an H100 or H200."""


def make_cuda_bank(kept: CudaTask, zygote: Zygote, task: Task, reference: CudaReference, like: Case) -> CudaBank:
    """Cases for timing. Raises TaskError."""
    kept.scout(zygote, task, reference, like)
    return make_bank(reference, like, kept, zygote.settings)


def faster_than_light(timing: Timing, cases: Sequence[Case], settings: JudgeSettings) -> str:
    """Why no GPU can be as fast, empty when it can: less than the bytes need at the memory's peak (roofline, memory
    side), or than the smallest kernel takes, so that one launch must have done the work of several calls.

    What fits into the L2 cache may still be there, or not yet be written back: it does not count.
    """
    moved = cases[-1].moved_bytes
    seconds = timing.candidate_ms * 1e-3
    if seconds < max(0, moved - 2 * l2_bytes()) / peak_bytes_per_second():
        return f"{seconds * 1e6:.1f} us a call is faster than its bytes can move ({moved} bytes)"
    if moved and seconds < SHORTEST_CALL_SECONDS:
        return f"{seconds * 1e6:.2f} us a call is faster than a kernel can be launched: speed of light"
    return too_fast_for_products(seconds, cases[-1].flops, peak_flops_per_second())


def had_room() -> bool:
    """Whether a third of the GPU's memory is free now that no candidate lives."""
    return free_bytes() > total_bytes() / 3
