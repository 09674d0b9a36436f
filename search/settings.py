"""How candidates are asked for: the search section of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class SearchSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    backend: Literal["cpp", "cuda"] = "cpp"
    """The language that candidates are asked for. They are judged where it runs: judge.device follows it."""
    hardware: str = ""
    """What prompts call the machine. Empty: as the shown records do, else by this machine's processor or GPU."""
    short_prompts: bool = False
    """Leave out what a policy has learnt by supervision: the form of an answer, requirements and restrictions."""
    operator: Literal["contrast", "vanilla", "evolve"] = "contrast"
    """"evolve" lets a bandit draw one of contrast, translate, repair, crossover and fuse for each prompt: training and
    evolution are then one loop on one archive."""
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
    turns: int = Field(1, ge=1, le=32)
    """Answers of one trajectory in a contrastive step: from the second on, the policy sees its last answer and what the
    judge said of it, and answers again (Kevin, arXiv 2507.11948). A trajectory ends early when its chat leaves no room
    in rollout.max_model_len. What a turn earns later: learner.reward.turn_discount."""
    max_prompt_tokens: int = Field(1536, ge=64)
    """A prompt is cut to fewer exemplars until it fits."""


OperatorName = Literal[
    "vanilla", "contrast", "functional", "translate", "repair", "edit", "crossover", "fuse", "retrieve"
]


class EvolutionSettings(BaseModel):
    """How `warpsmith optimize` searches: batches x proposals x edits."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    batches: int = Field(0, ge=0)
    """Rounds; 0 goes on until a budget is spent."""
    proposals: int = Field(4, ge=1)
    """Prompts of a round, each by an operator and a model that the bandit draws."""
    edits: int = Field(1, ge=0)
    """How often each answer of a round is followed up at once: edited when it is correct, repaired when it is not."""
    operators: tuple[OperatorName, ...] = (
        "translate",
        "repair",
        "edit",
        "crossover",
        "fuse",
        "retrieve",
        "contrast",
    )
    functional: bool = False
    """Ask for a functional PyTorch form first, which translations are then shown."""
    transplants: int = Field(2, ge=0)
    """Kernels of the most similar tasks that are judged as they stand, while the task has no correct one."""
    templates: int = Field(8, ge=0)
    """Kernels made from the task's traced operations that are judged first, without a model; 0 for none. Where models
    are asked too, at most half of the candidates. Later rounds try their other schedules along with the sweep."""
    sweep_trials: int = Field(4, ge=0)
    """New settings of the best kernel's numbers that are tried in each round, without a model."""
    islands: int = Field(2, ge=1)
    migration_interval: int = Field(16, ge=0)
    """Records between two migrations; 0 for none."""
    migrants: int = Field(1, ge=1)
    novelty: float = Field(0.9999, gt=0, le=1)
    """A new kernel more similar than this to one that was judged is not judged; repairs and edits always are."""
    prompt_tokens: int = Field(24_000, ge=64)
    """Longest prompt for an endpoint; the local policy's is search.max_prompt_tokens."""


PRESETS: dict[str, EvolutionSettings] = {
    "default": EvolutionSettings(),
    "best-of-n": EvolutionSettings(
        operators=("vanilla",), edits=0, sweep_trials=0, transplants=0, templates=0, islands=1, novelty=1.0
    ),
    "cuda-l1": EvolutionSettings(
        operators=("contrast", "vanilla"), edits=0, sweep_trials=0, transplants=0, templates=0, islands=1, novelty=1.0
    ),
    "ai-cuda-engineer": EvolutionSettings(
        batches=10,
        proposals=8,
        edits=0,
        operators=("translate", "repair", "crossover", "retrieve"),
        functional=True,
        sweep_trials=0,
        transplants=0,
        templates=0,
        islands=1,
    ),
    "alphaevolve": EvolutionSettings(
        batches=25,
        proposals=4,
        edits=0,
        operators=("edit", "vanilla"),
        sweep_trials=0,
        transplants=0,
        templates=0,
        islands=4,
    ),
    "robust-kbench": EvolutionSettings(
        batches=8,
        proposals=4,
        edits=2,
        operators=("translate", "repair", "edit", "crossover", "fuse"),
        sweep_trials=0,
        transplants=0,
        templates=0,
    ),
}
"""The composition of each (which operators, islands, follow-ups) is that of the publication it is named after; sizes
that a publication leaves open, or that differ between its experiments, are ours."""
