"""How weights change: the learner section of the configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RewardSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    smoothing_k: float = Field(default=1.5, gt=0)
    """clip((r - mu) / sigma, -k, k) with mu and sigma running per task (CUDA-L1, section 3.4)."""
    partial_credit: dict[str, float] = Field(default_factory=dict)
    """Reward by status for completions that are not correct, on the scale of the speedup. Empty as in CUDA-L1: wrong
    is 0. A policy too weak to write working kernels gets its first gradient from here ("parsed" is a candidate that
    did at least parse)."""
    advantage: Literal["grpo", "dr_grpo", "rloo"] = "grpo"
    turn_discount: float = Field(default=0.4, ge=0, le=1)
    """Where search.turns is above 1, a turn earns its own reward and, discounted by this for each turn between, those
    of the later turns of its trajectory. 0 makes each turn stand alone."""
    turn_return: Literal["sum", "max"] = "sum"
    """"sum" adds the discounted rewards up, "max" takes the best one; Kevin (arXiv 2507.11948) found "sum" at 0.4 the
    better."""
    overlong: Literal["keep", "mask", "penalise"] = "keep"
    """A completion that was cut at rollout.max_tokens: "keep" learns from it like any other, "mask" leaves it out of
    the loss (its reward still counts in its group's mean), "penalise" takes up to ``overlong_penalty`` off the reward
    of every completion longer than max_tokens - overlong_buffer (DAPO, arXiv 2503.14476, section 3.4)."""
    overlong_buffer: int = Field(default=128, ge=1)
    """Tokens before the limit over which the penalty grows from 0 to ``overlong_penalty``."""
    overlong_penalty: float = Field(default=1.0, ge=0)
    """On the scale of the speedup."""


class LoraSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    rank: int = Field(default=16, ge=0)
    """0 trains all weights."""
    alpha: float = Field(default=32.0, gt=0)
    targets: tuple[str, ...] = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LearnerSettings(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    lr: float = Field(default=1e-4, ge=0)
    sft_lr: float | None = Field(default=None, ge=0)
    """Of supervised updates; None: lr."""
    weight_decay: float = Field(default=0.0, ge=0)
    grad_clip: float = Field(default=1.0, gt=0)
    zero_stage: int = Field(default=1, ge=0, le=3)
    offload: Literal["none", "optimizer", "all"] = "none"
    """What ZeRO keeps in the host's memory, not the GPU's: the optimizer's state and its step (stages 1 to 3), or with
    stage 3 the weights too. On a CPU it changes nothing but the path that is taken."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    micro_batch_tokens: int = Field(default=4096, ge=128)
    """Most tokens (prompts included) of one forward and backward."""
    logits_chunk_tokens: int = Field(default=512, ge=16)
    """Logits are made for this many tokens at a time, never for the whole batch."""
    gradient_checkpointing: bool = True
    epochs: int = Field(default=1, ge=1)
    """Passes over each step's batch."""
    clip_low: float = Field(default=0.2, gt=0)
    clip_high: float = Field(default=0.28, gt=0)
    """Clip-higher (DAPO, section 3.1)."""
    ratio_level: Literal["token", "sequence"] = "token"
    """Whether each token has its own ratio (PPO) or all of a completion share one (GSPO, which wants clips near 3e-4).
    They differ only with epochs above 1 or stale weights: in the first pass on-policy every ratio is 1."""
    kl_coefficient: float = Field(default=0.02, ge=0)
    """Weight of the k3 estimate of KL(policy || reference policy); 0 needs no reference policy."""
    tis_cap: float = Field(default=2.0, gt=0)
    """Truncated importance sampling: min(p_learner / p_engine, cap). Always on."""
    gpus: float = Field(default=0, ge=0)
    """GPUs of one learner process; 0 learns on the CPU. Roles that share a GPU ask for parts of it."""
    lora: LoraSettings = LoraSettings()
    reward: RewardSettings = RewardSettings()
    threads: int = Field(default=0, ge=0)
    """Threads of one learner process on a CPU; 0 takes every core it may run on. Resuming bit for bit needs as many."""
    keep_versions: int = Field(default=2, ge=1)
    """Published weights and checkpoints kept on disk. With 1 a damaged one leaves none to go back to."""
    keep_every: int = Field(default=0, ge=0)
    """Checkpoints whose version is a multiple of it are kept for good; 0 keeps none."""
