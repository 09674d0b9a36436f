"""What the policy is asked for by clients, and what it answers piece by piece."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Generation:
    """One request for completions."""

    request_id: str
    messages: tuple[dict[str, str], ...] = ()
    """A chat; or else `prompt`."""
    prompt: str | tuple[int, ...] = ""
    """A text, or token ids, to continue."""
    n: int = 1
    max_tokens: int | None = None
    """None: as many as the context has room for."""
    temperature: float = 1.0
    top_p: float = 1.0
    stop: tuple[str, ...] = ()
    seed: int | None = None
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logprobs: int | None = None
    """So many alternatives for each token, besides the sampled one; None: no logprobs."""


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """A sampled token, and the likeliest ones in its place."""

    token: str
    logprob: float
    """Nats."""
    top: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Piece:
    """The next part of one of the `n` answers."""

    index: int
    text: str
    finish_reason: str | None = None
    """"stop" or "length" with the last piece of an answer."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Of this answer, so far."""
    policy_version: int = 0
    """Version of the weights that write this request's answers: all of them are by one."""
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The request cannot be answered: travels as a value, for Ray would wrap an exception into a page of text."""

    status: int
    message: str
    param: str | None = None


@dataclass(frozen=True, kw_only=True)
class Answer:
    """A JSON answer with its HTTP status, made by a deployment behind the front."""

    status: int
    body: dict[str, Any]
