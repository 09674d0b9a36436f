"""How a region walks through memory: which dimensions become one loop, and where each tensor is read."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from search.nodes import REDUCE, VIEW, Node, Size, contiguous_strides, node_args
from search.regions import Region, places
from search.schedule import Schedule

_RESERVED = frozenset({
    "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "int", "long", "new", "operator", "private",
    "register", "return", "short", "signed", "static", "struct", "switch", "this", "union", "unsigned", "void", "while",
})  # fmt: skip


@dataclass(frozen=True)
class Access:
    root: Node
    strides: tuple[Size, ...]
    """Along the domain's dimensions."""
    offset: Size


@dataclass(kw_only=True)
class Group:
    """Dimensions that are walked through as one."""

    dims: tuple[int, ...]
    size: Size
    name: str = ""
    index: str = ""


@dataclass(kw_only=True)
class Writer:
    """Collects what the function needs while its text is made."""

    region: Region
    schedule: Schedule
    python_name: Callable[[Node], str]
    size_text: Callable[[Size, Sequence[Node]], str]
    c_names: dict[Node, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    extras: dict[str, tuple[str, str]] = field(default_factory=dict)
    groups: list[Group] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    variables: itertools.count[int] = field(default_factory=itertools.count)
    arrays: bool = False


class Walk:
    """Loops, indices and names of a region's tensors."""

    def __init__(self, writer: Writer) -> None:
        self.w, self.region = writer, writer.region
        self.accesses = self._accesses()
        self.outer, self.inner, self.last = self._loops()
        self.w.arrays = bool(self.last)

    def _accesses(self) -> dict[tuple[Node, Node], Access]:
        found: dict[tuple[Node, Node], Access] = {}
        for node in self.region.forms:
            for argument in node_args(node):
                if argument.root not in self.region.forms:
                    found[argument, node] = self._access(argument, node)
        for output in self.region.outputs:
            found[output, output] = self._access(output, output)
        return found

    def _access(self, tensor: Node, consumer: Node) -> Access:
        """How the consumer reads the tensor; (tensor, tensor) is how an output is written."""
        rank = len(self.region.domain)
        zero = (0,) * len(self.region.domain[0])
        own = tensor.stride if tensor.kind == VIEW else contiguous_strides(tensor.shape)
        shape = consumer.args[0].shape if consumer.kind == REDUCE and tensor is not consumer else consumer.shape
        where = (
            tuple(range(rank)) if consumer.kind == REDUCE and tensor is not consumer else places(consumer, self.region)
        )
        strides = [zero] * rank
        for d, (size, stride) in enumerate(zip(tensor.shape, own, strict=True)):
            if set(size) != {1}:
                strides[where[d + len(shape) - len(tensor.shape)]] = stride
        return Access(tensor.root, tuple(strides), tensor.offset if tensor.kind == VIEW else zero)

    def _loops(self) -> tuple[list[Group], list[Group], list[Group]]:
        """Loops over what is not reduced, over what is, and over blocks of what lies behind it."""
        domain, dims = self.region.domain, self.region.dims
        every = list(range(len(domain)))
        if dims is None:
            parts: list[list[int]] = [every, [], []]
        else:
            parts = [[d for d in every if d < dims[0]], list(dims), [d for d in every if d > dims[-1]]]
        outer, inner, behind = (self._collapsed(part) for part in parts)
        if dims is None:
            outer, inner = outer[:-1], outer[-1:]
        outer, last = outer + behind[:-1], behind[-1:]
        self.w.groups = [*outer, *inner, *last]
        self.w.groups.sort(key=lambda group: group.dims)
        for number, group in enumerate(self.w.groups):
            group.name, group.index = f"n{number}", f"i{number}"
        return outer, inner, last

    def _collapsed(self, dims: Sequence[int]) -> list[Group]:
        domain = self.region.domain
        groups: list[Group] = []
        for d in dims:
            if set(domain[d]) == {1}:
                continue
            if groups and self._are_one(groups[-1].dims[-1], d):
                last = groups[-1]
                size = tuple(a * b for a, b in zip(last.size, domain[d], strict=True))
                groups[-1] = Group(dims=(*last.dims, d), size=size)
            else:
                groups.append(Group(dims=(d,), size=domain[d]))
        return groups

    def _are_one(self, d: int, e: int) -> bool:
        sizes = self.region.domain[e]
        return all(
            access.strides[d] == tuple(s * n for s, n in zip(access.strides[e], sizes, strict=True))
            for access in self.accesses.values()
        )

    def _index(self, access: Access) -> str:
        terms = []
        for group in self.w.groups:
            stride = access.strides[group.dims[-1]]
            if set(stride) != {0}:
                factor = self._stride_text(access, group, stride)
                terms.append(group.index if factor == "1" else f"{group.index} * {factor}")
        if set(access.offset) != {0}:
            terms.insert(0, self._extra(access, access.offset))
        return " + ".join(terms) or "0"

    def _stride_text(self, access: Access, group: Group, stride: Size) -> str:
        later = [g for g in self.w.groups if g.dims > group.dims]
        mine = [g for g in later if set(access.strides[g.dims[-1]]) != {0}]
        choices = [mine, *(list(c) for k in range(len(later) + 1) for c in itertools.combinations(later, k))]
        for choice in choices:
            if all(math.prod(g.size[v] for g in choice) == stride[v] or group.size[v] == 1 for v in range(len(stride))):
                return " * ".join(g.name for g in choice) or "1"
        for size in access.root.shape:  # the stride of a dimension of size 1 is any number
            if all(s == n or group.size[v] == 1 for v, (s, n) in enumerate(zip(stride, size, strict=True))):
                return self._extra(access, size)
        return self._extra(access, stride)

    def _extra(self, access: Access, size: Size) -> str:
        """A parameter for a number of elements that is no product of sizes."""
        text = self.w.size_text(size, [access.root])
        if text.isdigit():
            return text
        known = next((name for name, (_, python) in self.w.extras.items() if python == text), None)
        if known is None:
            known = f"e{len(self.w.extras)}"
            self.w.extras[known] = ("long", text)
        return known

    def _name(self, node: Node) -> str:
        """The C name of a tensor in memory."""
        if node not in self.w.c_names:
            plain = re.sub(
                r"\W", "_", self.w.python_name(node).removeprefix("self.").replace("[", "_").replace("]", "")
            )
            if plain in _RESERVED or re.fullmatch(r"[nivse]\d+|b|w|j", plain) or plain in self.w.c_names.values():
                plain = f"{plain}_{len(self.w.c_names)}"
            self.w.c_names[node] = plain
        return self.w.c_names[node]

    def _memory(self, tensor: Node, consumer: Node) -> str:
        access = self.accesses[tensor, consumer]
        return f"{self._name(access.root)}[{self._index(access)}]"
