"""Cores of a judge: pinned, and its own as far as the machine has enough of them."""

from __future__ import annotations

import contextlib
import fcntl
import os
from io import TextIOWrapper
from pathlib import Path

from judge.errors import JudgeError
from judge.lease import folder_of_this_user


class Cores:
    """Claims the highest-numbered cores that this process may use and no other judge of this user holds: the lowest
    ones serve interrupts and everybody else. Where too few are free, or the folder of locks is another user's (which
    the timing lease complains of, unless it is switched off), it shares the highest.

    Judges that all took the same core would verify one after the other, and a compiler that shares it with a dozen
    others runs into its deadline. A claim is a lock beside those of the timing lease, and ends with its holder too.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        allowed = sorted(os.sched_getaffinity(0), reverse=True)
        self._claims: list[TextIOWrapper] = []
        mine: list[int] = []
        with contextlib.suppress(JudgeError):
            locks = folder or folder_of_this_user()
            for core in allowed:
                if len(mine) < count and self._claim(locks / f"core-{core}.lock"):
                    mine.append(core)
        if len(mine) < count:
            self.release()
            mine = allowed[:count]
        self.numbers = sorted(mine)

    def _claim(self, path: Path) -> bool:
        claim = path.open("w")
        try:
            fcntl.flock(claim, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def release(self) -> None:
        """Other judges may take them from now on."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()
