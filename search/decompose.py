"""What ATen does in one operation and a kernel in several: softmax, means, variances, norms."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from judge.task_trace import Attribute
from search.nodes import Node, Size, Varying


class Maker(Protocol):
    """Makes nodes; search/program.py has the one that reads traces."""

    def point(self, op: str, *args: Any, shape: tuple[Size, ...] | None = None, dtype: str = "float32") -> Node: ...

    def reduce(
        self, op: str, node: Node, dims: Sequence[int], *, keep: bool = True, divide: int | None = None
    ) -> Node: ...

    def leaf_as(self, node: Node, shape: tuple[Size, ...], dim: int) -> Node: ...


def _dims(args: tuple[Any, ...], at: int) -> tuple[int, ...]:
    given = args[at] if len(args) > at else None
    if isinstance(given, int) and not isinstance(given, bool):
        return (given,)
    return tuple(given) if isinstance(given, tuple) else ()


def _at(args: tuple[Any, ...], place: int, default: Any) -> Any:
    return args[place] if len(args) > place else default


def _reduction(op: str, divide: int | None = None) -> Any:
    def rule(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        return reader.reduce(op, args[0], _dims(args, 1), keep=bool(_at(args, 2, False)), divide=divide)

    return rule


def _softmax(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    if args[2]:
        return None
    x, dim = args[0], args[1]
    grown = reader.point("exp", reader.point("sub", x, reader.reduce("max", x, (dim,))))
    return reader.point("div", grown, reader.reduce("sum", grown, (dim,)))


def _log_softmax(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    if args[2]:
        return None
    x, dim = args[0], args[1]
    moved = reader.point("sub", x, reader.reduce("max", x, (dim,)))
    total = reader.reduce("sum", reader.point("exp", moved), (dim,))
    return reader.point("sub", moved, reader.point("log", total))


def _logsumexp(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    x, dims, keep = args[0], _dims(args, 1), bool(_at(args, 2, False))
    most = reader.reduce("max", x, dims)
    total = reader.reduce("sum", reader.point("exp", reader.point("sub", x, most)), dims)
    result = reader.point("add", reader.point("log", total), most)
    return result if keep else _squeezed(reader, result, dims)


def _squeezed(reader: Maker, node: Node, dims: Sequence[int]) -> Node:
    rank = len(node.shape)
    chosen = {d % rank for d in dims} or set(range(rank))
    shape = tuple(size for d, size in enumerate(node.shape) if d not in chosen)
    return reader.point("clone", node, shape=shape)


def _variance(root: bool) -> Any:
    def rule(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
        correction = kwargs.get("correction", 1)
        if correction is None:
            correction = 1
        if isinstance(correction, Varying | Attribute) or correction != int(correction):
            return None
        keep = kwargs.get("keepdim", _at(args, 2, False))
        dims = _dims(args, 1)
        moved = reader.point("sub", args[0], reader.reduce("sum", args[0], dims, divide=0))
        square = reader.point("square", moved)
        found = reader.reduce("sum", square, dims, keep=bool(keep), divide=int(correction))
        return reader.point("sqrt", found) if root else found

    return rule


def _vector_norm(reader: Maker, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    order = _at(args, 1, 2)
    if isinstance(order, Attribute):
        order = order.value
    x, dims, keep = args[0], _dims(args, 2), bool(_at(args, 3, False))
    if order in (2, None):
        return reader.point("sqrt", reader.reduce("sum", reader.point("square", x), dims, keep=keep))
    if order in (1, float("inf")):
        return reader.reduce("sum" if order == 1 else "max", reader.point("abs", x), dims, keep=keep)
    return None


def _layer_norm(reader: Maker, args: tuple[Any, ...], number: int) -> Node | None:
    x, shape, weight, bias, eps = args
    if x.dtype != "float32":
        return None
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    return _normed(reader, x, dims, weight, bias, eps)


def _normed(reader: Maker, x: Node, dims: Sequence[int], weight: Any, bias: Any, eps: Any) -> Node:
    moved = reader.point("sub", x, reader.reduce("sum", x, dims, divide=0))
    spread = reader.reduce("sum", reader.point("square", moved), dims, divide=0)
    result = reader.point("mul", moved, reader.point("rsqrt", reader.point("add", spread, eps)))
    if weight is not None:
        result = reader.point("mul", result, weight)
    return result if bias is None else reader.point("add", result, bias)


def _batch_norm(reader: Maker, args: tuple[Any, ...], number: int) -> Node | None:
    """With running statistics."""
    x, weight, bias, mean, variance = args[:5]
    eps = args[-1]
    if args[5] is True or mean is None or variance is None or x.dtype != "float32":
        return None

    def channel(node: Node) -> Node:
        return reader.leaf_as(node, x.shape, 1)

    scale = reader.point("rsqrt", reader.point("add", channel(variance), eps))
    if weight is not None:
        scale = reader.point("mul", scale, channel(weight))
    result = reader.point("mul", reader.point("sub", x, channel(mean)), scale)
    return result if bias is None else reader.point("add", result, channel(bias))


def _first_max(op: str) -> Any:
    def rule(reader: Maker, args: tuple[Any, ...], number: int) -> Node | None:
        if len(args) < 2 or args[0].dtype != "float32":
            return None
        return reader.reduce(op, args[0], _dims(args, 1), keep=bool(_at(args, 2, False)))

    return rule


APART: dict[str, Callable[..., Node | None]] = {
    "sum": _reduction("sum"),
    "mean": _reduction("sum", 0),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "_softmax": _softmax,
    "_log_softmax": _log_softmax,
    "logsumexp": _logsumexp,
    "var": _variance(root=False),
    "std": _variance(root=True),
    "linalg_vector_norm": _vector_norm,
    "norm": _vector_norm,
}
FIRST_ONLY: dict[str, Callable[..., Node | None]] = {
    "native_layer_norm": _layer_norm,
    "_native_batch_norm_legit_no_training": lambda reader, args, number: _batch_norm(
        reader, (*args[:5], False, *args[5:]), number
    ),
    "native_batch_norm": _batch_norm,
    "max": _first_max("max"),
    "min": _first_max("min"),
}
"""Operations of several results, of which only the first is used."""
