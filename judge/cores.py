"""Cores of a judge: pinned, and its own as far as the machine has enough of them."""

from __future__ import annotations

import os
import socket


class Cores:
    """Claims the highest-numbered cores that this process may use and no other judge of this machine holds: the lowest
    ones serve interrupts and everybody else. Where too few are free it shares the highest.

    Judges that all took the same core would verify one after the other, and a compiler that shares it with a dozen
    others runs into its deadline. A claim is a socket in Linux's abstract namespace, which ends with its process.

    Args:
        count: how many.
        among: who claims; others do not count.
    """

    def __init__(self, count: int, among: str = "warpsmith-judge") -> None:
        self._among = among
        allowed = sorted(os.sched_getaffinity(0), reverse=True)
        self._claims: list[socket.socket] = []
        mine: list[int] = []
        for core in allowed:
            if len(mine) < count and self._claim(core):
                mine.append(core)
        if len(mine) < count:
            self.release()
            mine = allowed[:count]
        self.numbers = sorted(mine)

    def _claim(self, core: int) -> bool:
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0{self._among}-core-{core}")
        except OSError:
            claim.close()
            return False
        self._claims.append(claim)
        return True

    def release(self) -> None:
        """Other judges may take them from now on."""
        for claim in self._claims:
            claim.close()
        self._claims.clear()
