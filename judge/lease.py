"""Who may disturb whom: one judge of a machine times at any moment, and nobody compiles or verifies meanwhile."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path

from judge.errors import JudgeError

_POLL_SECONDS = 0.005


class Lease:
    """Two file locks of this user on this machine. The kernel releases them when their holder dies.

    Whoever wants to time holds the gate while it waits for those who compile and verify, and everybody passes the gate:
    so it waits for those already in, never for an endless row of newcomers.
    """

    def __init__(self, enabled: bool, wait_seconds: float = 600.0, folder: Path | None = None) -> None:
        """Raises JudgeError when the folder of locks is not this user's."""
        self._wait_seconds = wait_seconds
        self._gate: TextIOWrapper | None = None
        self._lock: TextIOWrapper | None = None
        if enabled:
            folder = folder or folder_of_this_user()
            self._gate = (folder / "timing.gate").open("w")
            self._lock = (folder / "timing.lock").open("w")

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While compiling and verifying."""
        end = time.monotonic() + self._wait_seconds
        with self._held(self._gate, fcntl.LOCK_SH, end):
            self._take(self._lock, fcntl.LOCK_SH, end)
        try:
            yield
        finally:
            _release(self._lock)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While timing."""
        end = time.monotonic() + self._wait_seconds
        with self._held(self._gate, fcntl.LOCK_EX, end), self._held(self._lock, fcntl.LOCK_EX, end):
            yield

    @contextmanager
    def _held(self, file: TextIOWrapper | None, kind: int, end: float) -> Iterator[None]:
        self._take(file, kind, end)
        try:
            yield
        finally:
            _release(file)

    def _take(self, file: TextIOWrapper | None, kind: int, end: float) -> None:
        while file is not None:
            try:
                fcntl.flock(file, kind | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    raise JudgeError(
                        f"waited {self._wait_seconds:g} s for another judge of this machine to finish timing "
                        f"({file.name}); set judge.exclusive_timing=false to time side by side"
                    ) from None
                time.sleep(_POLL_SECONDS)

    def close(self) -> None:
        for file in (self._gate, self._lock):
            if file is not None:
                file.close()


def _release(file: TextIOWrapper | None) -> None:
    if file is not None:
        fcntl.flock(file, fcntl.LOCK_UN)


def folder_of_this_user() -> Path:
    folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"warpsmith-{os.getuid()}"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.is_symlink() or folder.lstat().st_uid != os.getuid():
        raise JudgeError(f"{folder} belongs to somebody else: remove it, or set judge.exclusive_timing=false")
    return folder
