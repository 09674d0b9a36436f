"""Where a kernel stands in the space of ways to be fast: memory x compute x parallelism, four levels each.

Read off the code that is compiled, with its comments taken out, so that nothing which a model merely claims counts.
An archive cell keeps its fastest kernel (MAP-Elites: Mouret and Clune, arXiv 1504.04909), which keeps different ideas
alive beside the best one.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from typing import NamedTuple

from archive.types import Record

LEVELS = 4
"""Levels of each axis: 0, 1, 2, and 3 or more of the axis's means."""

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/|(?m:^\s*#(?!pragma|define|include|if|else|endif)[^\n]*)", re.DOTALL)

_MEMORY = (
    r"__restrict__|\brestrict\b",  # loads may be moved over stores
    r"\b(tile|block|chunk|panel|BM|BN|BK|TILE\w*|BLOCK\w*)\b\s*[;=+*,)]",  # a working set made to fit
    r"__shared__|\balignas\b|\b(float|double|half)\s+\w+\s*\[\s*\w+\s*\]",  # a buffer near the cores
    r"_mm\w*_(load|stream|store)|\bfloat4\b|\bld\.global|__ldg|__builtin_prefetch|cp\.async|_mm_prefetch",
)
_COMPUTE = (
    r"#pragma omp[^\n]*\bsimd\b|#pragma GCC ivdep",
    r"_mm\d*_\w+|__m(128|256|512)|\bvector_size\b|\bwmma\b|\bmma\.sync|\bhalf2\b",
    r"\bfmaf?\s*\(|__fmaf?_r|_fmadd_|#pragma GCC (optimize|target)|__expf|\bfexp\w*\b|\bfast\w*\b",
    r"#pragma (GCC )?unroll|\b[a-z]\w*0\s*\+=[^;]*;[^;]*\b[a-z]\w*1\s*\+=",
)
_PARALLELISM = (
    r"#pragma omp[^\n]*\bparallel\b|blockIdx|program_id",
    r"\b(collapse|schedule|num_threads|nowait)\s*\(?|blockDim|num_warps",
    r"#pragma omp[^\n]*\breduction\b|__shfl|__syncthreads|\batomicAdd\b|#pragma omp[^\n]*\batomic\b",
    r"#pragma omp[^\n]*\btask\b|cooperative_groups|cudaStream|#pragma omp[^\n]*\bsections\b",
)


class Cell(NamedTuple):
    """A place in the grid; each axis from 0 to LEVELS - 1."""

    memory: int
    compute: int
    parallelism: int


@functools.lru_cache(maxsize=16384)
def cell_of(code: str) -> Cell:
    """How many of an axis's means the code uses, comments aside, at most LEVELS - 1."""
    text = _COMMENT.sub(" ", code)

    def level(patterns: Sequence[str]) -> int:
        return min(sum(re.search(pattern, text) is not None for pattern in patterns), LEVELS - 1)

    return Cell(level(_MEMORY), level(_COMPUTE), level(_PARALLELISM))


def elites(records: Sequence[Record]) -> dict[Cell, Record]:
    """The fastest correct record of each cell; of equally fast ones the first."""
    best: dict[Cell, Record] = {}
    for record in records:
        if record.score <= 0 or not record.code:
            continue
        cell = cell_of(record.code)
        if cell not in best or record.score > best[cell].score:
            best[cell] = record
    return best


def coverage(records: Sequence[Record]) -> float:
    """Share of the grid's cells that hold a correct kernel, 0 to 1."""
    return len(elites(records)) / LEVELS**3
