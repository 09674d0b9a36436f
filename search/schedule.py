"""The choices that a fused kernel is rendered with."""

from __future__ import annotations

from dataclasses import dataclass


class CannotRenderError(Exception):
    """A size or a stride that no text was found for."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a region is computed."""

    math: str = "fast"
    """"fast": our exp, tanh and erf (search/fast_math.py), the rest as "vector": the C library's functions for whole
    vectors (glibc 2.35 has all of them); "scalar": one call of the C library an element."""
    stage: bool = True
    """Keep the costliest value between passes in the output's memory rather than computing it again."""
    wide: bool = False
    """Sums in double."""
    threads: bool = True

    @property
    def words(self) -> str:
        """For a record's analysis."""
        parts = [
            f"{self.math} math",
            "staged in the output" if self.stage else "recomputed in each pass",
            "sums in double" if self.wide else "sums in float",
            "threads" if self.threads else "no threads",
        ]
        return ", ".join(parts)
