"""What calls to models cost, and the budget that they may not exceed.

A call is admitted while what was spent, together with the most that the calls in flight can still cost, is below the
budget; so the budget is exceeded by less than one call, however many run side by side. Every call leaves one line in a
ledger file, also one that failed: a search that is resumed knows what it has spent.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from actors.errors import ActorError


@dataclass(frozen=True, kw_only=True)
class Price:
    """USD for a million tokens."""

    prompt: float = 0.0
    completion: float = 0.0

    def of(self, prompt_tokens: int, completion_tokens: int) -> float:
        """USD of one call."""
        return (self.prompt * prompt_tokens + self.completion * completion_tokens) / 1e6


@dataclass(frozen=True, kw_only=True)
class Call:
    """One try of one call, successful or not."""

    prompt_id: str
    model: str
    operator: str
    prompt_tokens: int
    completion_tokens: int
    usd: float
    seconds: float
    outcome: str
    """"ok", or what went wrong: "429", "timeout", "cut", ..."""
    estimated: bool = False
    """The server did not say how many tokens; they were estimated from the text."""


class Spending:
    """Thread-safe. With a file, calls of earlier sessions count too."""

    def __init__(self, budget_usd: float | None = None, ledger: Path | None = None) -> None:
        """Raises ActorError when the ledger cannot be read or written."""
        self.budget_usd = budget_usd
        self._lock = threading.Lock()
        self._reserved = 0.0
        self._ledger = ledger
        self._calls = _read(ledger) if ledger is not None else []
        self._spent = sum(call.usd for call in self._calls)

    @property
    def spent_usd(self) -> float:
        return self._spent

    @property
    def exhausted(self) -> bool:
        """Whether nothing more may be asked, even with no call in flight."""
        return self.budget_usd is not None and self._spent >= self.budget_usd

    @property
    def calls(self) -> Sequence[Call]:
        """All so far, in the order in which they ended."""
        with self._lock:
            return tuple(self._calls)

    @contextmanager
    def admitted(self, most_usd: float) -> Iterator[bool]:
        """Yields whether a call that costs at most so much may start; its share is held while the block runs."""
        with self._lock:
            allowed = self.budget_usd is None or self._spent + self._reserved < self.budget_usd
            self._reserved += most_usd if allowed else 0.0
        try:
            yield allowed
        finally:
            with self._lock:
                self._reserved -= most_usd if allowed else 0.0

    def add(self, call: Call) -> None:
        """Count a call. Raises ActorError when the ledger cannot be written."""
        with self._lock:
            self._calls.append(call)
            self._spent += call.usd
            if self._ledger is not None:
                try:
                    with self._ledger.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(asdict(call)) + "\n")
                except OSError as error:
                    raise ActorError(f"{self._ledger}: cannot be written: {error.strerror}") from error


def _read(ledger: Path) -> list[Call]:
    """Calls of earlier sessions; a last line that was cut by a kill is left out."""
    try:
        ledger.parent.mkdir(parents=True, exist_ok=True)
        text = ledger.read_text("utf-8") if ledger.exists() else ""
    except OSError as error:
        raise ActorError(f"{ledger}: cannot be read: {error.strerror}") from error
    calls = []
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            calls.append(Call(**json.loads(line)))
        except (ValueError, TypeError):
            if number < len(text.splitlines()):
                raise ActorError(f"{ledger}:{number}: not a line of a ledger; move the file away") from None
    if text and not text.endswith("\n"):
        with ledger.open("a", encoding="utf-8") as file:
            file.write("\n")
    return calls
