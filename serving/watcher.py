"""One look at the database for all who wait for something to happen to a job."""

from __future__ import annotations

import asyncio

from serving.job_store import JobStore
from warpsmith import WarpsmithError

LOOK_SECONDS = 0.25


class Watcher:
    """seen = watcher.position; look at the jobs; await watcher.changed(seen, seconds). For one event loop.

    Looks only while somebody waits.
    """

    patience = 3.0
    """How long a stream waits before it looks for itself."""

    def __init__(self, store: JobStore) -> None:
        self._store = store
        self.position = 0
        """Sequence number of the newest event that was seen."""
        self._waiting = 0
        self._changed: asyncio.Condition | None = None
        self._looking: asyncio.Task[None] | None = None

    async def changed(self, seen: int, seconds: float) -> bool:
        """Until there are events after `seen`, at most so long; whether there are."""
        condition = self._changed = self._changed or asyncio.Condition()
        self._waiting += 1
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(condition))
        try:
            async with asyncio.timeout(seconds):
                async with condition:
                    await condition.wait_for(lambda: self.position > seen)
            return True
        except TimeoutError:
            return False
        finally:
            self._waiting -= 1

    async def _look(self, condition: asyncio.Condition) -> None:
        while self._waiting:
            try:
                latest = await asyncio.to_thread(self._store.latest)
            except WarpsmithError:  # waiters look for themselves after their patience, and get the error
                latest = self.position
            if latest > self.position:
                async with condition:
                    self.position = latest
                    condition.notify_all()
            await asyncio.sleep(LOOK_SECONDS)
