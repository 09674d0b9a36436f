"""What the front needs of the deployments behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Protocol

from serving.generation import Answer, Generation, Piece, Refusal
from serving.messages import JudgeRequest


class BackendError(Exception):
    """A deployment does not answer; the text is one line. Clients are told to try again."""


@dataclass(frozen=True, kw_only=True)
class Health:
    """Signs of life."""

    policy_version: int
    optimizer: bool
    """Whether jobs are worked on."""


class Backend(Protocol):
    """Every method may raise BackendError."""

    async def complete(self, generation: Generation) -> list[Piece] | Refusal: ...

    def stream(self, generation: Generation) -> AsyncIterator[Piece | Refusal]: ...

    async def judge(self, request: JudgeRequest) -> Answer: ...

    async def health(self) -> Health: ...
