"""The base of every actor in a pool."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from actors.types import Failure
from warpsmith import WarpsmithError


class FatalError(Exception):
    """Raised inside a member that cannot go on: its pool kills and replaces it."""


@dataclass(frozen=True, kw_only=True)
class Birth:
    """What a member says of itself when it is ready."""

    pid: int
    node_id: str
    incarnation: int


class Member:
    """An actor that RLlib's FaultTolerantActorManager can call: ``ping`` and ``apply``.

    The constructor does nothing, so that it cannot fail; ``start`` does the heavy work, and its failure is a value.
    An actor is never restarted by Ray: a replacement is a new actor with a new incarnation number, so an answer from
    a dying process cannot be taken for one of its successor.
    """

    def __init__(self, incarnation: int) -> None:
        self.incarnation = incarnation

    def ping(self) -> int:
        return self.incarnation

    def apply(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """``func(self, *args, **kwargs)``, or the Failure that it ended in."""
        # RLlib marks an actor unhealthy for any exception that crosses this line.
        try:
            return func(self, *args, **kwargs)
        except Exception as error:
            return failure_of(error)

    def birth(self) -> Birth:
        import ray

        node_id = ray.get_runtime_context().get_node_id() if ray.is_initialized() else ""
        return Birth(pid=os.getpid(), node_id=node_id, incarnation=self.incarnation)

    def close(self) -> None:
        """Gives back what the process would not give back by dying."""


def failure_of(error: Exception) -> Failure:
    """The exception as a value that any process can read."""
    lines = str(error).strip().splitlines()
    return Failure(
        kind=type(error).__name__,
        message=lines[0] if lines else type(error).__name__,
        trace="".join(traceback.format_exception(error)),
        error=type(error)(*error.args).with_traceback(None) if isinstance(error, WarpsmithError) else None,
        fatal=isinstance(error, FatalError),
    )
