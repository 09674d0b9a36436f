"""The two supervised stages: the sft and self_supervised sections of the configuration."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class SftSettings(BaseModel):
    """Supervised learning from a file of answers, after the experts' (run.sft_epochs)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    corpus: str | None = None
    """A JSONL file of {"prompt", "answer", "score", "task"}; none: no such updates."""
    epochs: int = Field(1, ge=1)
    batch: int = Field(8, ge=1)
    """Samples of one update."""
    commit_every: int = Field(1, ge=1)
    """Updates from one checkpoint to the next, which the weights reach the engines with; a killed run repeats those
    since the last. More than 1 where an update takes less than its checkpoint."""
    warmup: int = Field(0, ge=0)
    """Updates over which learner.sft_lr is reached, in equal steps."""
    final_lr: float = Field(1.0, ge=0, le=1)
    """Share of learner.sft_lr that is left at the last update: it falls in equal steps after the warm-up."""
    min_score: float = 0.0
    """Answers that score less are left out."""
    max_per_task: int = Field(0, ge=0)
    """The best so many answers of a task (of a prompt, where the line names no task); 0 takes all."""


class SelfSupervisedSettings(BaseModel):
    """Sample, keep what is correct, train on it, before the contrastive steps (second stage of CUDA-L1)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rounds: int = Field(0, ge=0)
    """0 leaves the stage out."""
    tasks_per_round: int = Field(4, ge=1)
    max_kept: int = Field(2, ge=1)
    """Distinct correct answers of one prompt that are trained on, the fastest first."""
    batch: int = Field(8, ge=1)
    """Samples of one update; a round takes as many updates as its successes fill."""
