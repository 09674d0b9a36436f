"""Who may disturb whom: one judge of a machine times at any moment, and nobody compiles or verifies meanwhile."""

from __future__ import annotations

import fcntl
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from judge.errors import JudgeError

_POLL_SECONDS = 0.005


class Lease:
    """A file lock of this user on this machine. The kernel releases it when its holder dies."""

    def __init__(self, enabled: bool, wait_seconds: float = 600.0) -> None:
        self._wait_seconds = wait_seconds
        self._file = None
        if enabled:
            folder = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"warpsmith-{os.getuid()}"
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._file = (folder / "timing.lock").open("w")

    @contextmanager
    def shared(self) -> Iterator[None]:
        """While compiling and verifying."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While timing."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextmanager
    def _held(self, kind: int) -> Iterator[None]:
        if self._file is None:
            yield
            return
        end = time.monotonic() + self._wait_seconds
        while True:
            try:
                fcntl.flock(self._file, kind | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > end:
                    raise JudgeError(
                        f"waited {self._wait_seconds:g} s for another judge of this machine to finish timing "
                        f"({self._file.name}); set judge.exclusive_timing=false to time side by side"
                    ) from None
                time.sleep(_POLL_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
