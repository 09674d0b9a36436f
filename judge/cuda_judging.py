"""What judge.api does otherwise on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from judge.cuda_device import l2_bytes, peak_bytes_per_second
from judge.cuda_player import CudaPlayer as CudaPlayer
from judge.cuda_reference import CudaReference as CudaReference
from judge.cuda_task import CudaTask
from judge.cuda_timing import CudaBank, make_bank
from judge.cuda_timing import time_candidate as time_candidate
from judge.process import Zygote
from judge.reference import Case
from judge.settings import JudgeSettings
from judge.timing import Timing
from tasks.types import Task


def make_cuda_bank(kept: CudaTask, zygote: Zygote, task: Task, reference: CudaReference, like: Case) -> CudaBank:
    """Cases for timing. Raises TaskError."""
    kept.scout(zygote, task, reference, like)
    return make_bank(reference, like, kept, zygote.settings)


def is_faster_than_light(timing: Timing, cases: Sequence[Case], settings: JudgeSettings) -> bool:
    """Whether a call took less than its bytes need at the memory's peak (roofline, memory side).

    What fits into the L2 cache may still be there, or not yet be written back: it does not count.
    """
    bytes_through_memory = max(0, cases[-1].moved_bytes - 2 * l2_bytes())
    return timing.candidate_ms * 1e-3 < bytes_through_memory / peak_bytes_per_second()
