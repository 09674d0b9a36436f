"""What judge.api does otherwise on a GPU."""

from __future__ import annotations

from collections.abc import Sequence

from judge.cuda_device import l2_bytes, peak_bytes_per_second
from judge.cuda_player import CudaPlayer as CudaPlayer
from judge.cuda_reference import CudaReference as CudaReference
from judge.cuda_timing import CudaBank, Scouted, make_bank, scout
from judge.cuda_timing import time_candidate as time_candidate
from judge.process import Zygote
from judge.reference import Case
from judge.settings import JudgeSettings
from judge.timing import Timing
from tasks.types import Task


class Scouts:
    """Baselines that were scouted already, by task: that need not be done for each candidate."""

    def __init__(self) -> None:
        self._known: dict[str, Scouted] = {}

    def bank(self, zygote: Zygote, task: Task, reference: CudaReference, like: Case, deadline: float) -> CudaBank:
        """Cases for timing. Raises TaskError."""
        if task.task_id not in self._known:
            for other in self._known.values():
                other.close()  # one compiled baseline at a time: its memory is a context's and a model's
            self._known = {k: v for k, v in self._known.items() if v.best in ("eager", "cuda_graph")}
            self._known[task.task_id] = scout(zygote, task, reference, like, deadline)
        return make_bank(reference, like, self._known[task.task_id], zygote.settings)

    def close(self) -> None:
        for scouted in self._known.values():
            scouted.close()
        self._known.clear()


def is_faster_than_light(timing: Timing, cases: Sequence[Case], settings: JudgeSettings) -> bool:
    """Whether a call took less than its bytes need at the memory's peak (roofline, memory side).

    What fits into the L2 cache may still be there, or not yet be written back: it does not count.
    """
    bytes_through_memory = max(0, cases[-1].moved_bytes - 2 * l2_bytes())
    return timing.candidate_ms * 1e-3 < bytes_through_memory / peak_bytes_per_second()
