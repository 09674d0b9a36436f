"""A typed operator graph over tensors of one ROWS x COLS grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

FULL, ROW, COL = "full", "row", "col"
"""Shapes: (ROWS, COLS), one number a row (ROWS, 1), one number a column (COLS,)."""
LEFT, RIGHT, TURNED = "left", "right", "turned"
"""A product's (ROWS, INNER) and (INNER, COLS); (COLS, ROWS)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Node:
    """An input or an operator's result. Nodes are shared: a graph is not a tree, and equality is identity."""

    op: str
    """"input", or a name in operators.OPERATORS or operators.LOW."""
    shape: str
    """FULL, ROW, COL, LEFT, RIGHT or TURNED."""
    args: tuple[Node, ...] = ()
    number: float = 0.0
    """The constant of operators that have one."""
    name: str = ""
    """Of inputs."""
    bound: float = 1.0
    """No value is larger than this in magnitude when the inputs are drawn as the judge draws them."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """What one task computes."""

    family: str
    """"elementwise", "row_reduction", "row_norm", "column_reduction", "scan", "transpose" or "matmul"."""
    outputs: tuple[Node, ...]
    inputs: tuple[Node, ...]
    """In the order of forward's arguments, parameters last."""
    parameters: frozenset[str] = frozenset()
    """Names of inputs that are parameters of the module."""
    flat: bool = False
    """A row reduction is returned as (ROWS,) and not as (ROWS, 1)."""

    @property
    def composition(self) -> str:
        """The operators and how they are joined, without names and constants: what held-out means is decided by it."""
        return " ; ".join(_signature(output) for output in self.outputs)

    @property
    def operators(self) -> int:
        """How many operators the graph has, shared ones once."""
        return sum(node.op != "input" for node in nodes(self.outputs))


def nodes(outputs: tuple[Node, ...]) -> Iterator[Node]:
    """Each node once, arguments before what uses them."""
    seen: set[Node] = set()

    def visit(node: Node) -> Iterator[Node]:
        if node in seen:
            return
        seen.add(node)
        for argument in node.args:
            yield from visit(argument)
        yield node

    for output in outputs:
        yield from visit(output)


def _signature(node: Node) -> str:
    if node.op == "input":
        return node.shape
    return f"{node.op}({','.join(_signature(argument) for argument in node.args)})"
