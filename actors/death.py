"""Ends actors for good, waits until they are gone, and says what others died of."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from actors.member import Birth

GRACE_SECONDS = 1.0


def kill(handle: Any, birth: Birth | None) -> None:
    """Kills an actor without a restart. Its process on this machine is sent SIGKILL when it does not go by itself: one
    that is stopped or stuck in the kernel does not read Ray's message. (At once would do too, but Ray then reports a
    crash to the user.) On another machine a task does the same; nobody waits for it, and a machine that is gone has
    taken the process along."""
    import ray

    with suppress(ValueError, ray.exceptions.RayError):  # an actor that has died already
        ray.kill(handle, no_restart=True)
    if birth is None:
        return
    if not _is_here(birth):
        _kill_there(birth)
    else:
        end_process(birth.pid)


def end_process(pid: int) -> bool:
    """Kills a Ray worker of this machine that does not go within a second; says whether it had to."""
    end = time.monotonic() + GRACE_SECONDS
    while _alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    if not _alive(pid):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def _kill_there(birth: Birth) -> None:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    alive = {node["NodeID"] for node in ray.nodes() if node["Alive"]}
    if birth.node_id in alive:
        place = NodeAffinitySchedulingStrategy(birth.node_id, soft=False)
        task = ray.remote(end_process).options(num_cpus=0, max_retries=0, scheduling_strategy=place)
        task.remote(birth.pid)


def wait_gone(births: Sequence[Birth], end: float) -> bool:
    """Waits until ``end`` (time.monotonic()) for these processes, where they are on this machine."""
    pids = [birth.pid for birth in births if _is_here(birth)]
    while any(_alive(pid) for pid in pids):
        if time.monotonic() > end:
            return False
        time.sleep(0.02)
    return True


def cause_of(error: Exception) -> str:
    """Why Ray could not bring a result, in a few words."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    cause = next((line for line in lines if "reason" in line.lower() or "killed" in line.lower()), "")
    return f"{type(error).__name__}{': ' + cause[:160] if cause else ''}"


def _is_here(birth: Birth) -> bool:
    import ray

    return ray.is_initialized() and birth.node_id == ray.get_runtime_context().get_node_id()


def _alive(pid: int) -> bool:
    """Whether it is still a Ray worker: a number may be given to another process, and a zombie is dead."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        return state != "Z" and Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"ray::")
    except (OSError, IndexError):
        return False
