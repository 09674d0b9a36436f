"""A traced task as a graph of pointwise operations, reductions, views and library calls.

    program = read_program(trace_task(task))          # None when its structure differs between the task's variants

What ATen does in one operation and a kernel in several (softmax, norms, means) is taken apart here. Sizes are vectors
over the task's variants, so that a size is told from a constant by comparing variants.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from judge.task_trace import Attribute, Opaque, Operation, Ref, Trace
from search.aten_c import POINTWISE

Size = tuple[int, ...]
"""One number for each variant."""
LEAF, POINT, REDUCE, VIEW, LIBRARY = "leaf", "point", "reduce", "view", "library"

_VIEWS = frozenset({
    "view", "_unsafe_view", "reshape", "expand", "permute", "transpose", "t", "unsqueeze", "squeeze",
    "slice", "select", "split", "split_with_sizes", "chunk", "unbind", "alias", "detach", "narrow",
    "as_strided", "unfold", "diagonal",
})  # fmt: skip
_RANDOM = ("rand", "bernoulli", "normal", "dropout", "multinomial", "uniform")


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


def read_program(traces: Sequence[Trace], names: Sequence[str]) -> Program:
    """The program of a task's traces.

    Args:
        names: of forward's arguments.

    Raises NoProgramError: it draws random numbers, changes an input, or does other things for other shapes.
    """
    return _Reader(traces, names).read()


class _Reader:
    def __init__(self, traces: Sequence[Trace], names: Sequence[str]) -> None:
        self.traces, self.names = traces, names
        self.first = traces[0]
        self.nodes: list[Node] = []
        self.values: dict[int, Node] = {}
        for other in traces[1:]:
            same = [o.name for o in other.operations] == [o.name for o in self.first.operations]
            if not same or other.outputs != self.first.outputs or other.inputs != self.first.inputs:
                raise NoProgramError("forward does other things for other shapes")

    def read(self) -> Program:
        inputs: dict[int, Node] = {}
        for number, index in self.first.inputs.items():
            if index >= len(self.names):
                raise NoProgramError("forward takes a variable number of arguments")
            inputs[index] = self.values[number] = self._new(
                Node(kind=LEAF, name=self.names[index], shape=self._shape(number), dtype=self._dtype(number))
            )
        for number, path in self.first.parameters.items():
            text = "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))
            self.values[number] = self._new(
                Node(kind=LEAF, name=text, shape=self._shape(number), dtype=self._dtype(number))
            )
        for place, operation in enumerate(self.first.operations):
            self._operation(operation, [trace.operations[place] for trace in self.traces])
        return Program(
            inputs=tuple(inputs.get(index) for index in range(len(self.names))),
            nodes=tuple(self.nodes),
            outputs=tuple(self._value(number) for number in self.first.outputs),
            many=self.first.many,
        )

    def _new(self, node: Node) -> Node:
        self.nodes.append(node)
        return node

    def _value(self, number: int) -> Node:
        if number not in self.values:
            raise NoProgramError("a tensor comes from nowhere, such as a constant that forward keeps")
        return self.values[number]

    def _shape(self, number: int) -> tuple[Size, ...]:
        shapes = [trace.tensors[number].shape for trace in self.traces]
        if len({len(shape) for shape in shapes}) > 1:
            raise NoProgramError("the number of dimensions differs between shapes")
        return tuple(zip(*shapes, strict=True))

    def _dtype(self, number: int) -> str:
        return self.first.tensors[number].dtype

    def _operation(self, operation: Operation, all_of_it: Sequence[Operation]) -> None:
        name = operation.name.removeprefix("aten.").split(".")[0]
        if any(word in name for word in _RANDOM):
            raise NoProgramError("forward draws random numbers")
        args = self._joined([one.args for one in all_of_it])
        kwargs = {key: self._joined([one.kwargs[key] for one in all_of_it]) for key in operation.kwargs}
        if operation.mutated:
            name = self._check_in_place(operation, name, args)
        made = self._made(operation, name, args, kwargs)
        for number, node in made.items():
            self.values[number] = node
        for index in operation.mutated:
            self.values[operation.args[index].number] = self.values[operation.outs[0] or 0]

    def _check_in_place(self, operation: Operation, name: str, args: tuple[Any, ...]) -> str:
        """The operation's name out of place, where what it writes to is nobody else's."""
        written = [args[i] for i in operation.mutated if i < len(args)]
        plain = len(written) == 1 and isinstance(written[0], Node) and written[0].kind not in (LEAF, VIEW)
        seen = any(node.kind == VIEW and node.root is written[0] for node in self.nodes) if plain else True
        if not plain or seen or not name.endswith("_"):
            raise NoProgramError("forward writes into a tensor that others see")
        return name.removesuffix("_")

    def _made(self, operation: Operation, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[int, Node]:
        outs = operation.outs
        first = outs[0]
        if first is not None and len(outs) == 1 and not operation.many:
            node = self._taken_apart(name, args, kwargs, first) or self._pointwise(name, args, kwargs, first)
            if node is not None:
                return {first: node}
        unused = not any(number in self._read_numbers() for number in outs[1:] if number is not None)
        if first is not None and unused and name in _FIRST_ONLY:
            node = _FIRST_ONLY[name](self, args, first)
            if node is not None:
                return {first: node}
        kind = VIEW if name in _VIEWS and isinstance(args[0], Node) else LIBRARY
        made: dict[int, Node] = {}
        for index, number in enumerate(outs):
            if number is None:
                continue
            made[number] = self._new(
                Node(
                    kind=kind if kind == LIBRARY or self._is_view_of_whole(args[0], number) else LIBRARY,
                    op=operation.name,
                    args=args,
                    kwargs=kwargs,
                    shape=self._shape(number),
                    dtype=self._dtype(number),
                    stride=tuple(zip(*(trace.tensors[number].stride for trace in self.traces), strict=True)),
                    offset=tuple(trace.tensors[number].offset for trace in self.traces),
                    index=index if operation.many else None,
                )
            )
        return made

    def _read_numbers(self) -> set[int]:
        def walk(value: Any) -> Iterator[int]:
            if isinstance(value, Ref):
                yield value.number
            elif isinstance(value, tuple):
                for item in value:
                    yield from walk(item)

        if not hasattr(self, "_read_cache"):
            read = {n for one in self.first.operations for n in walk((one.args, tuple(one.kwargs.values())))}
            self._read_cache = read | set(self.first.outputs)
        return self._read_cache

    def _is_view_of_whole(self, of: Node, number: int) -> bool:
        """Whether the strides that were traced are those in memory that is contiguous."""
        root = of.root
        numbers = [n for n, node in self.values.items() if node is root]
        return all(
            trace.tensors[n].offset == 0
            and trace.tensors[n].stride == tuple(size[v] for size in contiguous_strides(root.shape))
            for n in numbers[:1]
            for v, trace in enumerate(self.traces)
        )

    def _joined(self, values: Sequence[Any]) -> Any:
        """One value for all variants: integers that differ become a Size in an Opaque-free form."""
        first = values[0]
        if isinstance(first, Ref):
            return self._value(first.number)
        if isinstance(first, tuple):
            if len({len(value) for value in values}) > 1:
                raise NoProgramError("the number of arguments differs between shapes")
            return tuple(self._joined(items) for items in zip(*values, strict=True))
        if isinstance(first, Attribute | Opaque | str) or first is None or isinstance(first, bool):
            return first
        if all(value == first for value in values):
            return first
        if isinstance(first, int) and all(isinstance(value, int) for value in values):
            return Varying(tuple(values))
        raise NoProgramError("a number differs between shapes")

    def point(self, op: str, *args: Any, shape: tuple[Size, ...] | None = None, dtype: str = "float32") -> Node:
        """A new pointwise node; its shape is the broadcast one unless given."""
        made = shape if shape is not None else broadcast([a.shape for a in args if isinstance(a, Node)])
        return self._new(Node(kind=POINT, op=op, args=args, shape=made, dtype=dtype))

    def reduce(self, op: str, node: Node, dims: Sequence[int], *, keep: bool = True, divide: int | None = None) -> Node:
        """A new reduction."""
        ones = (1,) * len(self.traces)
        rank = len(node.shape)
        chosen = tuple(sorted(d % rank for d in dims)) if dims else tuple(range(rank))
        shape = [ones if d in chosen else size for d, size in enumerate(node.shape)]
        if not keep:
            shape = [size for d, size in enumerate(node.shape) if d not in chosen]
        return self._new(Node(kind=REDUCE, op=op, args=(node,), shape=tuple(shape), dims=chosen, divide=divide))

    def leaf_as(self, node: Node, shape: tuple[Size, ...], dim: int) -> Node:
        """A vector as a tensor of a higher rank that differs along one dimension."""
        ones = (1,) * len(self.traces)
        zero = (0,) * len(self.traces)
        return self._new(
            Node(
                kind=VIEW,
                op="",
                args=(node,),
                shape=tuple(node.shape[0] if d == dim else ones for d in range(len(shape))),
                stride=tuple(ones if d == dim else zero for d in range(len(shape))),
                offset=zero,
            )
        )

    def _pointwise(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], number: int) -> Node | None:
        if name not in POINTWISE or self._dtype(number) not in ("float32", "bool"):
            return None
        given = [*args]
        if name == "clone" or (name == "div" and kwargs.get("rounding_mode")):
            given = given[:1] if name == "clone" else []
            strides = {trace.tensors[number].stride for trace in self.traces[:1]}
            if name == "clone" and strides != {tuple(s[0] for s in contiguous_strides(self._shape(number)))}:
                return None
        tensors = [a for a in given if isinstance(a, Node)]
        if not tensors or any(t.dtype not in ("float32", "bool") for t in tensors):
            return None
        extra = [kwargs[key] for key in ("alpha", "value", "approximate") if key in kwargs]
        known = {"alpha", "value", "approximate", "memory_format", "rounding_mode"}
        if set(kwargs) - known or any(isinstance(a, tuple | Varying | Opaque) for a in [*given, *extra]):
            return None
        if len(given) == 3 and name == "clamp" and given[1] is None:
            name, given = "clamp_max", [given[0], given[2]]
        given = [a for a in given if a is not None]
        return self.point(name, *given, *extra, shape=self._shape(number), dtype=self._dtype(number))

    def _taken_apart(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], number: int) -> Node | None:
        rule = _APART.get(name)
        if rule is None or not isinstance(args[0], Node) or args[0].dtype != "float32" or not args[0].shape:
            return None
        if self._dtype(number) != "float32" or (kwargs.get("dtype") not in (None, "float32")):
            return None
        return rule(self, args, kwargs)


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


def _dims(args: tuple[Any, ...], at: int) -> tuple[int, ...]:
    given = args[at] if len(args) > at else None
    if isinstance(given, int) and not isinstance(given, bool):
        return (given,)
    return tuple(given) if isinstance(given, tuple) else ()


def _at(args: tuple[Any, ...], place: int, default: Any) -> Any:
    return args[place] if len(args) > place else default


def _reduction(op: str, divide: int | None = None) -> Any:
    def rule(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
        return reader.reduce(op, args[0], _dims(args, 1), keep=bool(_at(args, 2, False)), divide=divide)

    return rule


def _softmax(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    if args[2]:
        return None
    x, dim = args[0], args[1]
    grown = reader.point("exp", reader.point("sub", x, reader.reduce("max", x, (dim,))))
    return reader.point("div", grown, reader.reduce("sum", grown, (dim,)))


def _log_softmax(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    if args[2]:
        return None
    x, dim = args[0], args[1]
    moved = reader.point("sub", x, reader.reduce("max", x, (dim,)))
    total = reader.reduce("sum", reader.point("exp", moved), (dim,))
    return reader.point("sub", moved, reader.point("log", total))


def _logsumexp(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node:
    x, dims, keep = args[0], _dims(args, 1), bool(_at(args, 2, False))
    most = reader.reduce("max", x, dims)
    total = reader.reduce("sum", reader.point("exp", reader.point("sub", x, most)), dims)
    result = reader.point("add", reader.point("log", total), most)
    return result if keep else _squeezed(reader, result, dims)


def _squeezed(reader: _Reader, node: Node, dims: Sequence[int]) -> Node:
    rank = len(node.shape)
    chosen = {d % rank for d in dims} or set(range(rank))
    shape = tuple(size for d, size in enumerate(node.shape) if d not in chosen)
    return reader.point("clone", node, shape=shape)


def _variance(root: bool) -> Any:
    def rule(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
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


def _vector_norm(reader: _Reader, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Node | None:
    order = _at(args, 1, 2)
    if isinstance(order, Attribute):
        order = order.value
    x, dims, keep = args[0], _dims(args, 2), bool(_at(args, 3, False))
    if order in (2, None):
        return reader.point("sqrt", reader.reduce("sum", reader.point("square", x), dims, keep=keep))
    if order in (1, float("inf")):
        return reader.reduce("sum" if order == 1 else "max", reader.point("abs", x), dims, keep=keep)
    return None


def _layer_norm(reader: _Reader, args: tuple[Any, ...], number: int) -> Node | None:
    x, shape, weight, bias, eps = args
    if x.dtype != "float32":
        return None
    dims = tuple(range(len(x.shape) - len(shape), len(x.shape)))
    return _normed(reader, x, dims, weight, bias, eps)


def _normed(reader: _Reader, x: Node, dims: Sequence[int], weight: Any, bias: Any, eps: Any) -> Node:
    moved = reader.point("sub", x, reader.reduce("sum", x, dims, divide=0))
    spread = reader.reduce("sum", reader.point("square", moved), dims, divide=0)
    result = reader.point("mul", moved, reader.point("rsqrt", reader.point("add", spread, eps)))
    if weight is not None:
        result = reader.point("mul", result, weight)
    return result if bias is None else reader.point("add", result, bias)


def _batch_norm(reader: _Reader, args: tuple[Any, ...], number: int) -> Node | None:
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
    def rule(reader: _Reader, args: tuple[Any, ...], number: int) -> Node | None:
        if len(args) < 2 or args[0].dtype != "float32":
            return None
        return reader.reduce(op, args[0], _dims(args, 1), keep=bool(_at(args, 2, False)))

    return rule


_APART: dict[str, Any] = {
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
_FIRST_ONLY: dict[str, Any] = {
    "native_layer_norm": _layer_norm,
    "_native_batch_norm_legit_no_training": lambda reader, args, number: _batch_norm(
        reader, (*args[:5], False, *args[5:]), number
    ),
    "native_batch_norm": _batch_norm,
    "max": _first_max("max"),
    "min": _first_max("min"),
}
"""Operations of several results, of which only the first is used."""
