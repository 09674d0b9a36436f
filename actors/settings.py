"""The pools, endpoints and deadlines: the rollout, evaluators and timeouts sections of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RolloutSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    actors: int = Field(1, ge=1)
    """vLLM engines, one Ray actor each."""
    max_actors: int = Field(0, ge=0)
    """More engines are started, up to so many, while prompts wait and the cluster has room; 0: never more."""
    group_size: int = Field(4, ge=1)
    """Completions sampled from each prompt."""
    max_tokens: int = Field(512, ge=1)
    """Longest completion."""
    temperature: float = Field(0.9, gt=0)
    top_p: float = Field(1.0, gt=0, le=1)
    max_model_len: int = Field(2560, ge=64)
    """Context of the engine; a prompt that leaves no room for max_tokens is refused before it is sent."""
    max_num_seqs: int = Field(32, ge=1)
    dtype: str = "bfloat16"
    kv_cache_gb: float = Field(1.0, gt=0)
    """Key-value cache. Its size is given and not measured, so that roles which start side by side on one GPU do not
    take each other's memory for their own."""
    gpu_memory_utilization: float = Field(0.3, gt=0, le=1)
    """vLLM refuses to start on a GPU of which less than this share is free."""
    enforce_eager: bool = True
    """On a GPU, False records the decoding steps as CUDA graphs (some seconds at the start)."""
    compiled: bool = False
    """With enforce_eager = False, torch.compile as well: a minute more at the start, for runs that last."""
    gpus: float = Field(0, ge=0)
    """GPUs of one engine; 0 runs it on a CPU. Roles that share a GPU ask for parts of it."""
    threads: int = Field(1, ge=1)
    """OpenMP threads of one engine on a CPU."""
    channel: Literal["file", "memory"] = "file"
    """How new weights reach the engines: by a folder on a disk that all of them see, or in memory (on a GPU by CUDA
    IPC), for one machine and engines on the learner's own GPU."""
    max_probe_difference: float = Field(0.15, gt=0)
    """Mean |delta logprob| between engine and learner after a sync above which the run stops. A bfloat16 engine and a
    float32 learner that hold the same weights differ by about 0.04."""
    max_retries: int = Field(2, ge=0)
    """How often prompts are sent again after their engine was lost."""


class EvaluatorSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    actors: int = Field(2, ge=1)
    """Judges side by side; their timing takes turns on one machine."""
    max_actors: int = Field(0, ge=0)
    """More judges are started, up to so many, while candidates wait and the cluster has room; 0: never more."""
    gpus: float = Field(0.02, gt=0)
    """What each asks of a GPU when judge.device is cuda; a lease gives it the whole of it while it times."""
    max_retries: int = Field(2, ge=0)
    """How often a candidate is judged again after a judge_error or a lost actor."""


class PlacementSettings(BaseModel):
    """Where the members of a run sit on a cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    mode: Literal["free", "roles", "colocated"] = "free"
    """roles: a Ray placement group for each of rollout, judges and learner, before any of them starts. colocated: one
    group on one node. free: nothing is reserved. Members above `actors` come where there is room."""
    autoscaler: bool = False
    """Ray starts and ends nodes by itself: while work waits and there is no room for members below max_actors, one of
    them waits for a place, which is what makes it start a node."""
    rollout_resources: dict[str, float] = Field(default_factory=dict)
    """Custom Ray resources that one engine takes, such as {"h200_node": 0.01} to keep it on a kind of node."""
    evaluator_resources: dict[str, float] = Field(default_factory=dict)
    learner_resources: dict[str, float] = Field(default_factory=dict)


class EndpointSettings(BaseModel):
    """One model behind one endpoint."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(min_length=1)
    """As the endpoint knows it."""
    base_url: str = "https://api.openai.com/v1"
    max_tokens: int = Field(8192, ge=1)
    temperature: float | None = Field(0.8, ge=0)
    """None leaves it to the endpoint."""
    concurrency: int = Field(4, ge=1)
    """Calls in flight."""
    tries: int = Field(5, ge=1)
    """Of one call, the first included."""
    backoff: float = Field(1.0, gt=0)
    """Seconds of the first pause; each one is twice the one before."""
    max_backoff: float = Field(60.0, gt=0)
    connect_seconds: float = Field(10.0, gt=0)
    silence_seconds: float = Field(120.0, gt=0)
    """Longest wait for the next piece of an answer."""
    call_seconds: float = Field(900.0, gt=0)
    """Longest that one try may take."""


class Timeouts(BaseModel):
    """Every wait of the product, in seconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    actor_start: float = Field(300, gt=0)
    placement: float = Field(120, gt=0)
    """Until all reserved places must be had; an autoscaler may have to start machines for them."""
    rollout: float = Field(900, gt=0)
    """One batch of prompts on one engine."""
    judge: float = Field(240, gt=0)
    """One candidate, queueing in the actor included."""
    learn: float = Field(1800, gt=0)
    """One update."""
    sync: float = Field(120, gt=0)
    """One set of weights into one engine."""
    ping: float = Field(10, gt=0)
    shutdown: float = Field(10, gt=0)
