"""Group commit: threads that add rows at the same time share one transaction, and each still waits until it is on disk.

A transaction costs several times what its inserts do. One thread writes; what the others bring meanwhile is written
together, by the first of those who brought it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = dict[str, Any]
MOST = 256
"""Rows of one transaction: a lock that is held for longer keeps other processes waiting."""


@dataclass(eq=False)
class _Entry:
    row: Row
    ready: threading.Event = field(default_factory=threading.Event)
    """Set when the row is written, or when its thread is the next to write."""
    done: bool = False
    new: bool = False
    error: Exception | None = None


class GroupCommit:
    """Writes rows of several threads together."""

    def __init__(self, write: Callable[[Sequence[Row]], Sequence[bool]]) -> None:
        """``write`` commits rows, all or none, and says of each whether it was new."""
        self._write = write
        self._mutex = threading.Lock()
        self._waiting: list[_Entry] = []
        self._is_led = False

    def add(self, row: Row) -> bool:
        """Whether the row was new; it is committed when this returns. Raises what writing this row alone raises."""
        entry = _Entry(row)
        with self._mutex:
            self._waiting.append(entry)
            leads, self._is_led = not self._is_led, True
        try:
            if not leads:
                entry.ready.wait()
                leads = not entry.done
            while not entry.done:
                self._write_batch()
        finally:
            self._leave(entry, leads)
        if entry.error is not None:
            raise entry.error
        return entry.new

    def _leave(self, entry: _Entry, leads: bool) -> None:
        """Have the next one write. An interrupted thread takes its own row back and loses nobody else's."""
        with self._mutex:
            if entry in self._waiting:
                self._waiting.remove(entry)
            if not leads and not (entry.ready.is_set() and not entry.done):
                return
            if self._waiting:
                self._waiting[0].ready.set()
            else:
                self._is_led = False

    def _write_batch(self) -> None:
        with self._mutex:
            batch, self._waiting = self._waiting[:MOST], self._waiting[MOST:]
        try:
            self._commit(batch)
        except BaseException:
            with self._mutex:
                self._waiting = [entry for entry in batch if not entry.done] + self._waiting
            raise
        finally:
            for entry in batch:
                if entry.done:
                    entry.ready.set()

    def _commit(self, batch: Sequence[_Entry]) -> None:
        try:
            new = self._write([entry.row for entry in batch])
        except Exception as error:
            if len(batch) == 1:
                batch[0].error, batch[0].done = error, True
                return
            for entry in batch:  # one bad row must not fail its neighbours
                self._commit([entry])
            return
        for entry, is_new in zip(batch, new, strict=True):
            entry.new, entry.done = is_new, True
