"""The values of a program: pointwise operations, reductions, views, library calls, and what they start from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Size = tuple[int, ...]
"""One number for each variant."""
LEAF, POINT, REDUCE, VIEW, LIBRARY = "leaf", "point", "reduce", "view", "library"


class NoProgramError(Exception):
    """Why a trace is no program."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """One value. Equality is identity."""

    kind: str
    """LEAF, POINT, REDUCE, VIEW or LIBRARY."""
    op: str = ""
    """Of POINT: a key of aten_c.POINTWISE; of REDUCE: "sum", "max", "min"; else ATen's name with overload."""
    args: tuple[Any, ...] = ()
    """Nodes, numbers, Attribute, and of LIBRARY and VIEW whatever ATen takes (nested tuples; Size for numbers)."""
    kwargs: dict[str, Any] = field(default_factory=dict)
    shape: tuple[Size, ...]
    dtype: str = "float32"
    dims: tuple[int, ...] = ()
    """Of REDUCE."""
    divide: int | None = None
    """Of REDUCE: the sum is divided by the number of elements less this."""
    stride: tuple[Size, ...] = ()
    """Of VIEW: in the memory of its root."""
    offset: Size = ()
    name: str = ""
    """Of LEAF: Python text, such as "x" or "self.norm.weight"."""
    index: int | None = None
    """Of LIBRARY and VIEW: which of several results."""

    @property
    def root(self) -> Node:
        """What a view is a view of."""
        node = self
        while node.kind == VIEW:
            node = node.args[0]
        return node


@dataclass(frozen=True, kw_only=True)
class Program:
    inputs: tuple[Node | None, ...]
    """By the arguments of forward; None for one that is no tensor."""
    nodes: tuple[Node, ...]
    """All, arguments first."""
    outputs: tuple[Node, ...]
    many: bool
    """Whether forward returns a tuple."""


def contiguous_strides(shape: Sequence[Size]) -> tuple[Size, ...]:
    """Strides in elements, variant by variant."""
    strides: list[Size] = []
    step: Size = (1,) * (len(shape[0]) if shape else 1)
    for size in reversed(shape):
        strides.append(step)
        step = tuple(a * b for a, b in zip(step, size, strict=True))
    return tuple(reversed(strides))


def node_args(node: Node) -> Iterator[Node]:
    """The nodes that a node reads."""

    def walk(value: Any) -> Iterator[Node]:
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            for item in value:
                yield from walk(item)

    yield from walk(node.args)
    yield from walk(tuple(node.kwargs.values()))


@dataclass(frozen=True)
class Varying:
    """A whole number that differs between variants."""

    size: Size


def broadcast(shapes: Sequence[tuple[Size, ...]]) -> tuple[Size, ...]:
    """The shape of a pointwise result."""
    rank = max(len(shape) for shape in shapes)
    found = []
    for d in range(rank):
        sizes = [shape[d - rank] for shape in shapes if d - rank >= -len(shape)]
        found.append(tuple(max(column) for column in zip(*sizes, strict=True)))
    return tuple(found)
