"""The judge's section of the configuration: the one place of its defaults."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class JudgeSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    device: Literal["cpu", "cuda"] = "cpu"
    """Where tasks and candidates run. "cuda" needs CuPy and a GPU; inputs and models are then moved there."""
    timed: bool = True
    """False ends after verification: a right candidate is "correct" without a speedup, and none is ever a win."""
    threads: int = Field(1, ge=1)
    """Threads that baseline and candidate may use alike; they are pinned to as many cores. One is the quietest."""
    pairs: int = Field(7, ge=3)
    """Most process pairs timed for one candidate: the unit of the statistics (judge/statistics.py)."""
    calls: int = Field(20, ge=4)
    """Timed calls in each process of a pair, each on contents never seen before in that process."""
    warmup_calls: int = Field(3, ge=1)
    """Untimed, verified calls before them."""
    confidence: float = Field(0.99, gt=0.5, lt=1)
    """Of the two-sided interval."""
    win_threshold: float = Field(1.01, ge=1)
    """A win needs the interval's lower end above this."""
    recheck_above: float = Field(3.0, gt=1)
    """A speedup above this is measured a second time on new pairs."""
    recheck_disagreement: float = Field(0.10, gt=0)
    """Two measurements further apart than this share, and beyond both intervals, are rejected."""
    error_factor: float = Field(4.0, ge=1)
    """A candidate's error may be this many times that of an honest run in the task's own dtype."""
    error_floor_ulps: float = Field(64.0, gt=0)
    """... but never less than this many machine epsilons of the output's dtype."""
    peak_memory_gbps: float = Field(1000.0, gt=0)
    """Speed of light: a call faster than its bytes / this is rejected. Generous: caches count."""
    peak_gflops: float = Field(2000.0, gt=0)
    """... and so is one that is faster than its matrix products at this by each thread, in 10^9 operations a second."""
    compile_seconds: float = Field(30.0, gt=0)
    build_seconds: float = Field(240.0, gt=0)
    """Deadline of what a candidate builds with torch's load_inline or Triton; stock headers take up to a minute."""
    load_seconds: float = Field(20.0, gt=0)
    call_seconds: float = Field(10.0, gt=0)
    """Deadline of a single forward call."""
    total_seconds: float = Field(120.0, gt=0)
    """Deadline of a whole verdict."""
    memory_mb: int = Field(4096, ge=256)
    """Address space of a candidate beyond what the zygote maps already."""
    bank_mb: int = Field(512, ge=16)
    """Memory for inputs and truths of one candidate; fewer calls are timed when a task needs more."""
    cuda_pairs: int = Field(4, ge=3)
    """As ``pairs``, on a GPU, where processes differ by some thousandths only."""
    cuda_batches: int = Field(3, ge=2)
    """Timed batches of calls in each process, after one that warms up."""
    cuda_batch_ms: float = Field(30.0, gt=0)
    """A batch is made about so long, by the baseline's time, so that the way to the process and back does not count."""
    cuda_max_calls: int = Field(512, ge=4)
    """Most calls in a batch."""
    cuda_bank_mb: int = Field(49152, ge=256)
    """GPU memory for inputs and outputs of one candidate's timed calls; at most 0.4 of what is free."""
    cuda_compile_baseline: bool = True
    """Time against torch.compile too (some ten seconds once for each task)."""
    exclusive_timing: bool = True
    """Only one judge of this machine times at any moment, and nobody else compiles meanwhile (file lock)."""
    require_sandbox: bool = False
    """Refuse to run when an isolation layer is missing."""
    cxx: str = "g++"
    cxx_flags: tuple[str, ...] = ("-O3", "-march=native", "-fopenmp", "-std=c++17", "-fPIC", "-shared")
