"""What goes to a model and what comes back."""

from __future__ import annotations

from dataclasses import dataclass, field

from judge.types import Candidate


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """One question to a model; the completions sampled from it are a group."""

    prompt_id: str
    """Also the group_id of its completions."""
    task_name: str
    operator: str
    """"contrast", "vanilla", ..."""
    messages: tuple[dict[str, str], ...]
    """OpenAI chat form: ({"role": "user", "content": ...},)."""
    exemplar_ids: tuple[str, ...] = ()
    """record_ids of the exemplars shown."""
    edits: str = ""
    """The code that the answer's search/replace blocks change; empty when the answer is a whole file."""
    model: str = "policy"
    """Which model is asked."""
    samples: int = 0
    """Completions that are wanted of the local policy; 0 leaves it to rollout.group_size."""


@dataclass(frozen=True, kw_only=True)
class Completion:
    """One answer of a model, with what the learner needs to train on it."""

    prompt_id: str
    index: int
    """0 .. group size - 1: (prompt_id, index) is unique, so no result is taken twice."""
    text: str
    prompt_token_ids: tuple[int, ...] = ()
    token_ids: tuple[int, ...] = ()
    """The completion's tokens, the stop token included when it was sampled."""
    logprobs: tuple[float, ...] = ()
    """log p of each of token_ids under the policy that sampled it, after temperature (vLLM processed_logprobs)."""
    finish_reason: str = ""
    """"stop", "length" when cut, or "refused" when the prompt left no room for an answer."""
    policy_version: int = 0
    reason: str = ""
    """Why it was refused or lost, in one line; empty otherwise."""
    model: str = "policy"
    """Who wrote it; the source of its record."""


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What the parser made of a completion: a candidate, or the reason why there is none."""

    candidate: Candidate | None
    analysis: str = ""
    """Text of the performance-analysis section."""
    design: str = ""
    """Text of the algorithm-design section."""
    reason: str = ""
    """Why there is no candidate; empty when there is one."""
    notes: tuple[str, ...] = field(default=())
    """What was tolerated or passed over: "code fence missing", "second code block ignored", ..."""
