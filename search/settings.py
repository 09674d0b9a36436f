"""How candidates are asked for: the search section of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SearchSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    operator: Literal["contrast", "vanilla"] = "contrast"
    sampler: Literal["bucket", "island", "random", "none"] = "bucket"
    """Which exemplars a contrast prompt shows; "none" turns it into a vanilla prompt."""
    exemplars: int = Field(2, ge=0, le=8)
    """N of CUDA-L1."""
    bucket_temperature: float = Field(0.5, gt=0)
    """tau of P(bucket) = softmax((mean score - mu) / tau)."""
    bucket_count: int = Field(8, ge=2)
    """Score buckets of a task, log-spaced over the speedup."""
    bucket_capacity: int = Field(16, ge=1)
    """Records a bucket keeps; the newest replaces the worst."""
    islands: int = Field(4, ge=1)
    """For the island sampler: records are spread over this many islands."""
    crossover_parents: int = Field(5, ge=2, le=10)
    """Most kernels that a crossover prompt shows, from slow to fast."""
    max_repairs: int = Field(3, ge=0)
    """Repairs in a row before a failing line is given up and translated anew."""
    max_prompt_tokens: int = Field(1536, ge=64)
    """A prompt is cut to fewer exemplars until it fits."""
