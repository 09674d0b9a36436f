"""SIGTERM as Ctrl-C, so that whoever ends a command, its actors are closed and its results kept."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """Inside, SIGTERM raises KeyboardInterrupt in the main thread."""

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def sigterm_kept() -> Iterator[None]:
    """Around ray.init, whose own handlers of SIGTERM end the process at once with code 15, or abort it three seconds
    later in the middle of closing: afterwards the handler is the one from before. Does nothing outside the main thread.
    """
    before = signal.getsignal(signal.SIGTERM)
    yield
    if threading.current_thread() is threading.main_thread() and before is not None:
        signal.signal(signal.SIGTERM, before)
