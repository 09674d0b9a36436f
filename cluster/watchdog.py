"""Ends what Ray leaves behind when the driver is killed by SIGKILL.

Ray's raylet and actors go within seconds, but two agents of its wait a minute for a server that is dead. The watchdog
is a small process that reads from a pipe which only the driver holds: when the driver is gone, however it went, the
pipe ends, and after a grace those of the driver's processes that are left are killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

GRACE_SECONDS = 4.0


def children() -> dict[int, float]:
    """This process's children and theirs: pid -> when it was started."""
    import psutil

    found = {}
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            found[child.pid] = child.create_time()
    return found


@contextmanager
def watchdog(others: dict[int, float]) -> Iterator[None]:
    """While inside, the processes that this one has started since do not outlive it.

    Args:
        others: ``children()`` of before: not ours to end.
    """
    started = [[pid, created] for pid, created in children().items() if others.get(pid) != created]
    # In a session of its own: Ctrl-C in the terminal is for the driver.
    process = subprocess.Popen(
        [sys.executable, "-m", "cluster.watchdog"], stdin=subprocess.PIPE, start_new_session=True
    )
    assert process.stdin is not None
    process.stdin.write(json.dumps(started).encode() + b"\n")
    process.stdin.flush()
    try:
        yield
    finally:
        process.stdin.close()
        process.wait()


def main() -> None:
    """Read the processes, wait for the end of the pipe, give them a moment, end what is left."""
    import psutil

    started = json.loads(sys.stdin.buffer.readline() or b"[]")
    while os.read(0, 4096):
        pass
    end = time.monotonic() + GRACE_SECONDS

    def left() -> list[psutil.Process]:
        found = []
        for pid, created in started:
            with suppress(psutil.NoSuchProcess):
                process = psutil.Process(pid)
                if process.create_time() == created and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    while left() and time.monotonic() < end:
        time.sleep(0.1)
    for process in left():
        with suppress(psutil.NoSuchProcess):
            process.kill()


if __name__ == "__main__":
    main()
