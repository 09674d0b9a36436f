"""Row operators in terms of sums, maxima and minima over a row; then the passes over a row that a kernel needs."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.procedural.graph import FULL, ROW, Graph, Node, nodes
from tasks.procedural.operators import ROW_NORMS, ROW_REDUCTIONS

REDUCTIONS = {"sum": "0.f", "max": "-1e38f", "min": "1e38f"}
"""With what an accumulator starts from. No value reaches 1e38: operators.py bounds them."""


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """How a row is computed: pass by pass, then the outputs."""

    cut: Node
    """What the first row operator reads; all passes are functions of it."""
    passes: tuple[tuple[Node, ...], ...]
    """The reductions of each pass; those of a later one need the results of the earlier ones."""
    outputs: tuple[Node, ...]
    """In terms of elementwise operators and reductions."""


def plan_rows(graph: Graph) -> RowPlan:
    """The plan for a graph of the families "row_reduction" and "row_norm"."""
    lowered: dict[Node, Node] = {}
    cut: Node | None = None
    for node in nodes(graph.outputs):
        args = tuple(lowered[argument] for argument in node.args)
        if node.op in ROW_REDUCTIONS or node.op in ROW_NORMS:
            cut = cut or args[0]
            lowered[node] = _LOWERED[node.op](args[0])
        else:
            lowered[node] = node if args == node.args else _like(node, args)
    assert cut is not None, f"a graph of the family {graph.family} has a row operator"
    outputs = tuple(lowered[output] for output in graph.outputs)
    levels: dict[Node, int] = {}
    passes: dict[int, list[Node]] = {}
    for node in nodes(outputs):
        levels[node] = max((levels[argument] for argument in node.args), default=0) + (node.op in REDUCTIONS)
        if node.op in REDUCTIONS:
            passes.setdefault(levels[node], []).append(node)
    return RowPlan(cut=cut, passes=tuple(tuple(passes[level]) for level in sorted(passes)), outputs=outputs)


def _like(node: Node, args: tuple[Node, ...]) -> Node:
    return Node(op=node.op, shape=node.shape, args=args, number=node.number, bound=node.bound)


def _op(name: str, *args: Node, number: float = 0.0) -> Node:
    shape = FULL if any(argument.shape == FULL for argument in args) else ROW
    return Node(op=name, shape=shape, args=args, number=number)


def _reduce(name: str, node: Node) -> Node:
    return Node(op=name, shape=ROW, args=(node,))


def _mean(v: Node) -> Node:
    return _op("over_cols", _reduce("sum", v))


def _squares(v: Node) -> Node:
    return _reduce("sum", _op("square", v))


def _logsumexp(v: Node) -> Node:
    most = _reduce("max", v)
    return _op("add", _op("log", _reduce("sum", _op("exp", _op("sub", v, most)))), most)


def _softmax(v: Node) -> Node:
    grown = _op("exp", _op("sub", v, _reduce("max", v)))
    return _op("div", grown, _reduce("sum", grown))


def _log_softmax(v: Node) -> Node:
    moved = _op("sub", v, _reduce("max", v))
    return _op("sub", moved, _op("log", _reduce("sum", _op("exp", moved))))


def _layer_norm(v: Node) -> Node:
    moved = _op("sub", v, _mean(v))
    variance = _op("over_cols", _squares(moved))
    return _op("mul", moved, _op("rsqrt", _op("shift", variance, number=1e-5)))


def _rms_norm(v: Node) -> Node:
    return _op("mul", v, _op("rsqrt", _op("shift", _op("over_cols", _squares(v)), number=1e-5)))


_LOWERED = {
    "row_sum": lambda v: _reduce("sum", v),
    "row_mean": _mean,
    "row_max": lambda v: _reduce("max", v),
    "row_min": lambda v: _reduce("min", v),
    "row_norm": lambda v: _op("sqrt", _squares(v)),
    "row_mean_square": lambda v: _op("over_cols", _squares(v)),
    "row_logsumexp": _logsumexp,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "l2_normalize": lambda v: _op("div", v, _op("floor_at", _op("sqrt", _squares(v)), number=1e-12)),
    "center": lambda v: _op("sub", v, _mean(v)),
}
