"""The Python side of a rendered program: lines of forward that allocate, launch kernels and call PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from judge.task_trace import Attribute, Opaque
from search.loops import CannotRenderError
from search.program import (
    LEAF,
    LIBRARY,
    POINT,
    REDUCE,
    VIEW,
    Node,
    Program,
    Size,
    Varying,
    contiguous_strides,
    node_args,
)

_METHODS = {
    "aten.t.default": "t",
    "aten.transpose.int": "transpose",
    "aten.view.default": "view",
    "aten._unsafe_view.default": "view",
    "aten.reshape.default": "reshape",
    "aten.permute.default": "permute",
    "aten.unsqueeze.default": "unsqueeze",
    "aten.squeeze.dim": "squeeze",
    "aten.select.int": "select",
    "aten.expand.default": "expand",
    "aten.detach.default": "detach",
}
_FUNCTIONS = {
    "aten.addmm.default": "torch.addmm",
    "aten.mm.default": "torch.mm",
    "aten.bmm.default": "torch.bmm",
    "aten.baddbmm.default": "torch.baddbmm",
    "aten.convolution.default": "torch.convolution",
    "aten.cumsum.default": "torch.cumsum",
    "aten.cat.default": "torch.cat",
}
_IN_FUNCTIONAL = frozenset({
    "silu", "mish", "gelu", "leaky_relu", "elu", "softplus", "hardswish", "hardsigmoid", "hardtanh", "relu6",
    "threshold",
})  # fmt: skip


class Emitter:
    """Lines of forward, with names for what lies in memory."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.lines: list[str] = []
        self._names: dict[Node, str] = {}
        self._results: dict[int, str] = {}
        self._taken = {node.name for node in program.nodes if node.kind == LEAF}
        leaves = [node for node in program.nodes if node.kind == LEAF]
        read = {argument.root for node in program.nodes for argument in node_args(node)}
        self._leaves = [node for node in leaves if node in read]
        for node in leaves:
            self._names[node] = node.name
        given = [node for node in program.inputs if node is not None and node in read]
        self.lines += [f"{node.name} = {node.name}.contiguous()" for node in given]

    def arguments(self) -> list[str]:
        """Of forward; "" where one is no tensor."""
        return ["" if node is None else node.name for node in self.program.inputs]

    def tensor(self, node: Node) -> str:
        """The name of a tensor that lies in memory."""
        if node not in self._names:
            raise CannotRenderError(f"{node.op or node.kind} has no place in memory")
        return self._names[node]

    def _fresh(self, node: Node) -> str:
        result = self.program.outputs[0] is node and "out" not in self._taken
        name = "out" if result else next(f"t{i}" for i in range(10_000) if f"t{i}" not in self._taken)
        self._taken.add(name)
        self._names[node] = name
        return name

    def allocate(self, node: Node) -> None:
        """An empty tensor for what a kernel writes."""
        like = next((leaf for leaf in self._leaves if leaf.shape == node.shape and leaf.dtype == "float32"), None)
        if like is not None:
            text = f"torch.empty_like({like.name})"
        else:
            source = next((leaf for leaf in self._leaves if leaf.dtype == "float32"), None)
            if source is None:
                raise CannotRenderError("no input in float32")
            text = f"{source.name}.new_empty({_row([self.size(size, []) for size in node.shape])})"
        self.lines.append(f"{self._fresh(node)} = {text}")

    def size(self, size: Size, prefer: Sequence[Node]) -> str:
        """Python text of a number that may differ between variants. Raises CannotRenderError."""
        constant = str(size[0]) if set(size) == {size[0]} else ""
        if constant in ("0", "1"):
            return constant
        near = [(node, d) for node in prefer if node in self._names for d in range(len(node.shape))]
        for node, d in near:
            if node.shape[d] == size:
                return f"{self._names[node]}.shape[{d}]"
        if constant:
            return constant
        every = [*near, *((leaf, d) for leaf in self._leaves for d in range(len(leaf.shape)))]
        for node, d in every:
            if node.shape[d] == size:
                return f"{self._names[node]}.shape[{d}]"
        for node, d in every:
            of = f"{self._names[node]}.shape[{d}]"
            if text := _multiple(size, node.shape[d], of):
                return text
        for node, d in every:
            for other, e in every:
                both = tuple(a * b for a, b in zip(node.shape[d], other.shape[e], strict=True))
                product = f"{self._names[node]}.shape[{d}] * {self._names[other]}.shape[{e}]"
                if both == size:
                    return product
                if text := _multiple(size, both, product):
                    return text
        raise CannotRenderError(f"a size ({', '.join(map(str, size))}) is not one of its inputs'")

    def call(self, node: Node) -> None:
        """A line that has PyTorch compute the node."""
        text = self._call_text(node)
        if node.kind == LIBRARY and node.index is not None:
            key = id(node.args)
            if key not in self._results:
                self._results[key] = next(f"r{i}" for i in range(10_000) if f"r{i}" not in self._taken)
                self._taken.add(self._results[key])
                self.lines.append(f"{self._results[key]} = {text}")
            text = f"{self._results[key]}[{node.index}]"
        whole = node.kind != LIBRARY or (node.stride == contiguous_strides(node.shape) and not any(node.offset))
        self.lines.append(f"{self._fresh(node)} = {text}" + ("" if whole else ".contiguous()"))

    def text(self, node: Node) -> str:
        """Python text of a tensor: a name, or a view of one."""
        if node in self._names:
            return self._names[node]
        if node.kind != VIEW:
            raise CannotRenderError(f"{node.op or node.kind} has no place in memory")
        of, rest = node.args[0], node.args[1:]
        if not node.op:  # a vector along one dimension
            sizes = ", ".join("1" if set(size) == {1} else "-1" for size in node.shape)
            return f"{self.text(of)}.view({sizes})"
        method = _METHODS.get(node.op)
        if method is not None and not node.kwargs:
            return f"{self.text(of)}.{method}({', '.join(self._value(item) for item in _flat(rest))})"
        text = self._library(node)
        return text if node.index is None else f"{text}[{node.index}]"

    def _call_text(self, node: Node) -> str:
        if node.kind == POINT:
            args = ", ".join(self._value(argument) for argument in node.args)
            if node.op == "clone":
                return f"{self.text(node.args[0])}.reshape({_row([self.size(size, []) for size in node.shape])})"
            if node.op == "gelu" and isinstance(node.args[-1], str):
                args = f"{self.text(node.args[0])}, approximate={node.args[-1]!r}"
            elif node.op in ("add", "sub", "rsub") and len(node.args) == 3:
                args = ", ".join(self._value(argument) for argument in node.args[:2])
                args += f", alpha={self._value(node.args[2])}"
            where = "torch.nn.functional" if node.op in _IN_FUNCTIONAL else "torch"
            return f"{where}.{node.op}({args})"
        if node.kind == REDUCE:
            (of,) = node.args
            keep = len(node.shape) == len(of.shape)
            if node.divide not in (None, 0):
                raise CannotRenderError("a variance outside a kernel")
            name = {"max": "amax", "min": "amin"}.get(node.op, "sum" if node.divide is None else "mean")
            return f"{self.text(of)}.{name}(dim={node.dims!r}, keepdim={keep})"
        return self._library(node)

    def _library(self, node: Node) -> str:
        texts = [self._value(argument) for argument in node.args]
        texts += [f"{key}={self._value(value)}" for key, value in node.kwargs.items() if value is not None]
        name = _FUNCTIONS.get(node.op) or "torch.ops." + node.op
        return f"{name}({', '.join(texts)})"

    def _value(self, value: Any) -> str:
        if isinstance(value, Node):
            return self.text(value)
        if isinstance(value, Varying):
            return self.size(value.size, [])
        if isinstance(value, Attribute):
            return "self" + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in value.path.split("."))
        if isinstance(value, Opaque):
            return value.text if value.text.startswith("torch.") else repr(value.text)
        if isinstance(value, tuple):
            return f"[{', '.join(self._value(item) for item in value)}]"
        return repr(value)


def _flat(values: Sequence[Any]) -> list[Any]:
    """Methods take sizes one by one."""
    return [item for value in values for item in (value if isinstance(value, tuple) else (value,))]


def _row(texts: Sequence[str]) -> str:
    return f"({', '.join(texts)}{',' if len(texts) == 1 else ''})"


def _multiple(size: Size, of: Size, text: str) -> str:
    """The size as a multiple or a part of another, or one of these less or more a constant; "" when it is none."""
    times = {a / b if b else -1 for a, b in zip(size, of, strict=True)}
    if len(times) == 1:
        (factor,) = times
        if factor >= 1 and factor == int(factor):
            return text if factor == 1 else f"{text} * {int(factor)}"
        if factor > 0 and 1 / factor == int(1 / factor):
            return f"({text}) // {int(1 / factor)}" if " " in text else f"{text} // {int(1 / factor)}"
    halves = [part for part in (2, 3, 4) if all(b // part == a for a, b in zip(size, of, strict=True))]
    if halves:
        return f"({text}) // {halves[0]}" if " " in text else f"{text} // {halves[0]}"
    if all((b + 1) // 2 == a for a, b in zip(size, of, strict=True)):
        return f"({text} + 1) // 2"
    return ""
