"""The sizes that a task is made with: three on a CPU, three on a GPU, the last of each held out and odd."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

HELD_OUT = "odd"


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One variant's sizes."""

    name: str
    rows: int
    cols: int
    inner: int | None = None
    """Of a product."""

    @property
    def held_out(self) -> bool:
        """Whether no prompt may show it."""
        return self.name == HELD_OUT

    @property
    def sizes(self) -> tuple[int, int, int | None]:
        """Rows, columns, inner."""
        return self.rows, self.cols, self.inner


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """A task's variants; the first of each is the one that is timed, the last is held out."""

    cpu: tuple[Shape, ...]
    gpu: tuple[Shape, ...]


def draw_shapes(family: str, seed: int) -> Shapes:
    """Sizes from flat to tall: which schedule is best changes with them."""
    rng = random.Random(f"shapes {seed}")
    if family == "matmul":
        cpu: list[tuple[int, int, int | None]] = [_product(rng, (64, 128, 256), (16, 32, 64)) for _ in range(2)]
        gpu: list[tuple[int, int, int | None]] = [_product(rng, (1024, 2048), (32, 64, 128)) for _ in range(2)]
        cpu.append((rng.randrange(31, 130, 2), rng.randrange(31, 130, 2), rng.randrange(17, 66, 2)))
        gpu.append((rng.randrange(257, 999, 2), rng.randrange(257, 999, 2), rng.randrange(17, 130, 2)))
    else:
        cpu = [(*_grid(rng, rng.choice((16, 17, 18)), 3, 13), None) for _ in range(2)]
        gpu = [(*_grid(rng, rng.choice((22, 23, 24)), 5, 14), None) for _ in range(2)]
        cpu.append((rng.randrange(33, 300, 2), rng.randrange(33, 1100, 2), None))
        gpu.append((rng.randrange(301, 2000, 2), rng.randrange(33, 3000, 2), None))
    if cpu[0] == cpu[1]:
        cpu[1] = (cpu[1][0] * 2, *cpu[1][1:])
    if gpu[0] == gpu[1]:
        gpu[1] = (gpu[1][0] // 2, *gpu[1][1:])
    return Shapes(cpu=_named(cpu), gpu=_named(gpu))


def _named(sizes: Sequence[tuple[int, int, int | None]]) -> tuple[Shape, ...]:
    return tuple(
        Shape(name=name, rows=r, cols=c, inner=k)
        for name, (r, c, k) in zip(("default", "second", HELD_OUT), sizes, strict=True)
    )


def _grid(rng: random.Random, log2_size: int, least: int, most: int) -> tuple[int, int]:
    """Rows and columns whose product is 2**log2_size, or three quarters of it."""
    cols = rng.randint(least, most)
    rows = log2_size - cols
    three = rng.random() < 0.25 and cols >= 4
    return 1 << rows, (3 << (cols - 2)) if three else 1 << cols


def _product(rng: random.Random, outer: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, int, int]:
    return rng.choice(outer), rng.choice(outer), rng.choice(inner)
