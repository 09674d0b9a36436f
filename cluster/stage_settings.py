"""The two supervised stages: the sft and self_supervised sections of the configuration."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from actors.settings import EndpointSettings


class SftModel(EndpointSettings):
    """A model behind an OpenAI-compatible endpoint that answers for rejection sampling."""

    api_key_env: str = "OPENAI_API_KEY"
    """Environment variable that holds its key; unset or empty: no key is sent."""
    prompt_usd: float = Field(0.0, ge=0)
    """USD for a million tokens."""
    completion_usd: float = Field(0.0, ge=0)


class SftSettings(BaseModel):
    """Supervised learning after the experts' answers (run.sft_epochs): from a file, then by rejection sampling."""

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
    models: tuple[SftModel, ...] = ()
    """Endpoints that are asked for kernels of every task; what the judge finds correct is learned from (first stage of
    CUDA-L1)."""
    policy: bool = False
    """The local policy is asked too."""
    attempts: int = Field(20, ge=1)
    """Most answers of one model to one task; fewer when enough are correct before."""
    kept: int = Field(2, ge=1)
    """Distinct correct kernels of one model and task that are learned from, the fastest first."""
    wave: int = Field(4, ge=1)
    """Answers of one model to one task that are asked for before they are judged and counted."""
    budget_usd: float | None = Field(None, gt=0)
    """Of all endpoints together; none: no limit."""

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [model.name for model in self.models]
        if len(set(names)) < len(names) or "policy" in names:
            raise ValueError(f"the names of sft.models must differ, and none be 'policy': {', '.join(names)}")
        return self

    @property
    def samples_models(self) -> bool:
        """Whether there is any rejection sampling."""
        return bool(self.models) or self.policy


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
