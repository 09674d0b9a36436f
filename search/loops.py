"""A region as a C++ function: loops over the domain, passes over the reduced dimensions, one statement a value.

Dimensions that every tensor walks through alike become one loop. A reduction over the last dimensions keeps its sums in
registers; one over others takes BLOCK columns at a time and keeps an array of sums, so that memory is read in order.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from judge.task_trace import Attribute
from search.aten_c import POINTWISE, REDUCTIONS, is_expensive, literal
from search.program import REDUCE, VIEW, Node, Size, contiguous_strides, node_args
from search.regions import FULL, REDUCED, Region, levels, places

BLOCK = 64
_RESERVED = frozenset({
    "auto", "bool", "break", "case", "char", "class", "const", "continue", "default", "delete", "do", "double",
    "else", "enum", "extern", "float", "for", "goto", "if", "int", "long", "new", "operator", "private",
    "register", "return", "short", "signed", "static", "struct", "switch", "this", "union", "unsigned", "void", "while",
})  # fmt: skip


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


@dataclass(frozen=True, kw_only=True)
class Function:
    """A rendered region."""

    text: str
    arguments: tuple[str, ...]
    """Python texts of what it is called with."""
    functions: frozenset[str]
    """Of the C library, that it calls."""
    passes: int
    can_stage: bool
    blocked: bool


@dataclass(frozen=True)
class _Access:
    root: Node
    strides: tuple[Size, ...]
    """Along the domain's dimensions."""
    offset: Size


@dataclass(kw_only=True)
class _Group:
    """Dimensions that are walked through as one."""

    dims: tuple[int, ...]
    size: Size
    name: str = ""
    index: str = ""


@dataclass(kw_only=True)
class _Writer:
    """Collects what the function needs while its text is made."""

    region: Region
    schedule: Schedule
    python_name: Callable[[Node], str]
    size_text: Callable[[Size, Sequence[Node]], str]
    c_names: dict[Node, str] = field(default_factory=dict)
    attributes: dict[str, str] = field(default_factory=dict)
    extras: dict[str, tuple[str, str]] = field(default_factory=dict)
    groups: list[_Group] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    variables: itertools.count[int] = field(default_factory=itertools.count)
    arrays: bool = False


def render(
    region: Region,
    name: str,
    schedule: Schedule,
    python_name: Callable[[Node], str],
    size_text: Callable[[Size, Sequence[Node]], str],
) -> Function:
    """The region's function.

    Args:
        python_name: text of a tensor that lies in memory.
        size_text: Python text of a size, of the shapes of these tensors by preference; raises CannotRenderError.
    """
    writer = _Writer(region=region, schedule=schedule, python_name=python_name, size_text=size_text)
    return _Body(writer).function(name)


class _Body:
    def __init__(self, writer: _Writer) -> None:
        self.w, self.region = writer, writer.region
        self.levels = levels(self.region)
        self.accesses = self._accesses()
        self.outer, self.inner, self.last = self._loops()
        self.w.arrays = bool(self.last)
        self.texts: dict[Node, str] = {}
        """Of values that are known outside the loops over reduced dimensions."""
        self.staged: Node | None = None

    # --- how memory is walked through ---

    def _accesses(self) -> dict[tuple[Node, Node], _Access]:
        found: dict[tuple[Node, Node], _Access] = {}
        for node in self.region.forms:
            for argument in node_args(node):
                if argument.root not in self.region.forms:
                    found[argument, node] = self._access(argument, node)
        for output in self.region.outputs:
            found[output, output] = self._access(output, output)
        return found

    def _access(self, tensor: Node, consumer: Node) -> _Access:
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
        return _Access(tensor.root, tuple(strides), tensor.offset if tensor.kind == VIEW else zero)

    def _loops(self) -> tuple[list[_Group], list[_Group], list[_Group]]:
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

    def _collapsed(self, dims: Sequence[int]) -> list[_Group]:
        domain = self.region.domain
        groups: list[_Group] = []
        for d in dims:
            if set(domain[d]) == {1}:
                continue
            if groups and self._are_one(groups[-1].dims[-1], d):
                last = groups[-1]
                size = tuple(a * b for a, b in zip(last.size, domain[d], strict=True))
                groups[-1] = _Group(dims=(*last.dims, d), size=size)
            else:
                groups.append(_Group(dims=(d,), size=domain[d]))
        return groups

    def _are_one(self, d: int, e: int) -> bool:
        sizes = self.region.domain[e]
        return all(
            access.strides[d] == tuple(s * n for s, n in zip(access.strides[e], sizes, strict=True))
            for access in self.accesses.values()
        )

    def _index(self, access: _Access) -> str:
        terms = []
        for group in self.w.groups:
            stride = access.strides[group.dims[-1]]
            if set(stride) != {0}:
                factor = self._stride_text(access, group, stride)
                terms.append(group.index if factor == "1" else f"{group.index} * {factor}")
        if set(access.offset) != {0}:
            terms.insert(0, self._extra(access, access.offset))
        return " + ".join(terms) or "0"

    def _stride_text(self, access: _Access, group: _Group, stride: Size) -> str:
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

    def _extra(self, access: _Access, size: Size) -> str:
        """A parameter for a number of elements that is no product of sizes."""
        text = self.w.size_text(size, [access.root])
        if text.isdigit():
            return text
        known = next((name for name, (_, python) in self.w.extras.items() if python == text), None)
        if known is None:
            known = f"e{len(self.w.extras)}"
            self.w.extras[known] = ("long", text)
        return known

    # --- values ---

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

    def _expression(self, node: Node, known: dict[Node, str], lines: list[str], loads: dict[str, str]) -> str:
        texts = []
        for argument in node.args:
            if isinstance(argument, Node):
                texts.append(self._argument(argument, node, known, lines, loads))
            elif isinstance(argument, Attribute):
                texts.append(self.w.attributes.setdefault(argument.path, f"a{len(self.w.attributes)}"))
            elif isinstance(argument, str):
                texts.append(argument)
            else:
                texts.append(literal(float(argument)))
        text = POINTWISE[node.op](*texts)
        self.w.used.update(re.findall(r"\b(\w+)\(", text))
        return text

    def _argument(
        self, argument: Node, node: Node, known: dict[Node, str], lines: list[str], loads: dict[str, str]
    ) -> str:
        if argument.root in self.region.forms:
            return known[argument.root]
        place = self._memory(argument, node)
        if place not in loads:
            loads[place] = f"v{next(self.w.variables)}"
            kind = "bool" if argument.dtype == "bool" else "float"
            lines.append(f"const {kind} {loads[place]} = {place};")
        return loads[place]

    def _compute(self, targets: Sequence[Node], known: dict[Node, str]) -> list[str]:
        """Statements that compute the targets, which join what is known."""
        lines: list[str] = []
        loads: dict[str, str] = {}

        def visit(node: Node) -> None:
            if node in known:
                return
            for argument in node_args(node):
                if argument.root in self.region.forms:
                    visit(argument.root)
            text = self._expression(node, known, lines, loads)
            known[node] = f"v{next(self.w.variables)}"
            kind = "bool" if node.dtype == "bool" else "float"
            lines.append(f"const {kind} {known[node]} = {text};")

        for target in targets:
            if target in self.region.forms:
                visit(target)
        return lines

    # --- the text ---

    def function(self, name: str) -> Function:
        reductions = [node for node in self.region.forms if node.kind == REDUCE]
        passes = max((self.levels[node] for node in reductions), default=0)
        stageable = self._stageable(passes)
        self.staged = stageable if self.w.schedule.stage else None
        body: list[str] = []
        for number in range(1, passes + 1):
            body += self._pass(number, [node for node in reductions if self.levels[node] == number])
        body += self._last_pass()
        text = self._around(body)
        tensors = list(dict.fromkeys([a.root for (t, c), a in self.accesses.items()]))
        reads = [t for t in tensors if t not in self.region.outputs]
        parameters = [f"const {'bool' if t.dtype == 'bool' else 'float'}* __restrict__ {self._name(t)}" for t in reads]
        parameters += [f"float* __restrict__ {self._name(t)}" for t in self.region.outputs]
        arguments = [self.w.python_name(t) for t in (*reads, *self.region.outputs)]
        for group in self.w.groups:
            parameters.append(f"long {group.name}")
            arguments.append(self._size_argument(group, tensors))
        for path, short in self.w.attributes.items():
            parameters.append(f"float {short}")
            arguments.append(_attribute_text(path))
        for short, (kind, python) in self.w.extras.items():
            parameters.append(f"{kind} {short}")
            arguments.append(python)
        head = f'extern "C" void {name}({", ".join(parameters)}) {{'
        return Function(
            text="\n".join([head, *_indented(text), "}"]),
            arguments=tuple(arguments),
            functions=frozenset(self.w.used),
            passes=passes,
            can_stage=stageable is not None,
            blocked=self.w.arrays,
        )

    def _size_argument(self, group: _Group, tensors: Sequence[Node]) -> str:
        """One dimension after the other, or the number of elements where the group is the whole of a tensor."""
        if len(self.w.groups) == 1:
            for tensor in tensors:
                if tuple(math.prod(column) for column in zip(*tensor.shape, strict=True)) == group.size:
                    return f"{self.w.python_name(tensor)}.numel()"
        parts = [self.w.size_text(self.region.domain[d], tensors) for d in group.dims]
        return " * ".join(part for part in parts if part != "1") or "1"

    def _stageable(self, passes: int) -> Node | None:
        """A costly value that more than one pass needs, where there is an output to keep it in."""
        full = [node for node in self.region.outputs if self.region.forms[node] == FULL]
        if not passes or not full:
            return None
        best: Node | None = None
        for node in self.region.forms:
            if self.region.forms[node] != FULL or node.kind == REDUCE or self.levels[node] >= passes:
                continue
            users = [u for u in self.region.forms if any(a.root is node for a in node_args(u))]
            at = {self.levels[u] if u.kind == REDUCE else passes + 1 for u in users if u.kind == REDUCE}
            later = any(u.kind != REDUCE and self.levels[u] > self.levels[node] for u in users)
            if (at and later) or len(at) > 1:
                best = node
        return best

    def _pass(self, number: int, reductions: Sequence[Node]) -> list[str]:
        wide = self.w.schedule.wide
        kind = {op: "double" if wide and op == "sum" else "float" for op in REDUCTIONS}
        names = {node: f"s{next(self.w.variables)}" for node in reductions}
        lines: list[str] = []
        size = "[BLOCK]" if self.w.arrays else ""
        for node, short in names.items():
            start = REDUCTIONS[node.op]
            lines.append(f"{kind[node.op]} {short}{size}" + (";" if size else f" = {start};"))
        if size:
            starts = " ".join(f"{short}[j] = {REDUCTIONS[node.op]};" for node, short in names.items())
            lines.append(f"for (long j = 0; j < w; j++) {{ {starts} }}")
        known = dict(self.texts)
        values: list[str] = []
        for node in reductions:
            source = node.args[0]
            if source.root in self.region.forms:
                values += self._compute([source.root], known)
        for node, short in names.items():
            source = node.args[0]
            value = known[source.root] if source.root in self.region.forms else self._memory(source, node)
            values.append(_accumulated(node.op, short + ("[j]" if size else ""), value))
        if self.staged is not None and self.staged in known and self.staged not in self.texts:
            place = self._output_place(self._buffer())
            values.append(f"{place} = {known[self.staged]};")
            self.texts[self.staged] = place
        clauses = {"sum": "+", "max": "max", "min": "min"}
        clause = "".join(f" reduction({clauses[node.op]}:{short})" for node, short in names.items())
        lines += self._walk(values, clause)
        lines += self._finish(number, names)
        return lines

    def _buffer(self) -> Node:
        return next(node for node in self.region.outputs if self.region.forms[node] == FULL)

    def _output_place(self, node: Node) -> str:
        return self._memory(node, node)

    def _finish(self, number: int, names: dict[Node, str]) -> list[str]:
        """What is known for a whole row once a pass is over."""
        count = " * ".join(group.name for group in self.inner) or "1"
        index = "[j]" if self.w.arrays else ""
        lines: list[str] = []
        known = dict(self.texts)
        for node, short in names.items():
            text = f"{short}{index}"
            if node.divide is not None:
                less = f"({count} - {node.divide})" if node.divide else f"({count})" if " " in count else count
                text = f"{text} / {less}"
            if self.w.arrays:
                known[node] = f"v{next(self.w.variables)}"
                lines.append(f"const float {known[node]} = {text};")
            elif node.divide is None and not self.w.schedule.wide:
                known[node] = short
            else:
                known[node] = f"v{next(self.w.variables)}"
                lines.append(f"const float {known[node]} = {text};")
        rows = [n for n, form in self.region.forms.items() if form == REDUCED and self.levels[n] == number]
        lines += self._compute([node for node in rows if node.kind != REDUCE], known)
        for node in self.region.outputs:
            if node in rows:
                lines.append(f"{self._output_place(node)} = {known[node]};")
        if not self.w.arrays:
            self.texts.update({node: known[node] for node in rows})
            return lines
        # Behind the reduced dimensions a row is a block of columns: what later passes read becomes an array.
        later = [n for n in rows if any(self._is_read_later(n, u, number) for u in self.region.forms)]
        heads = []
        for node in later:
            array = f"v{next(self.w.variables)}"
            heads.append(f"float {array}[BLOCK];")
            lines.append(f"{array}[j] = {known[node]};")
            self.texts[node] = f"{array}[j]"
        return [*heads, "#pragma omp simd", *self._loop_over_block(lines)]

    def _is_read_later(self, node: Node, user: Node, number: int) -> bool:
        reads = any(a.root is node for a in node_args(user))
        return reads and (self.region.forms[user] != REDUCED or self.levels[user] > number)

    def _last_pass(self) -> list[str]:
        full = [node for node in self.region.outputs if self.region.forms[node] != REDUCED]
        if not full:
            return []
        known = dict(self.texts)
        lines = self._compute(full, known)
        lines += [
            f"{self._output_place(node)} = {known[node]};" for node in full if known[node] != self._output_place(node)
        ]
        return self._walk(lines, "")

    def _walk(self, lines: Sequence[str], clause: str) -> list[str]:
        """The loops over the reduced dimensions (or the innermost ones of a kernel without), around some lines."""
        if self.w.arrays:
            inside = ["#pragma omp simd", *self._loop_over_block(list(lines))]
            return _nested([(g.index, g.name) for g in self.inner], inside)
        if not self.inner:
            return list(lines)
        last = self.inner[-1]
        inside = [f"#pragma omp simd{clause}", *_nested([(last.index, last.name)], lines)]
        return _nested([(g.index, g.name) for g in self.inner[:-1]], inside)

    def _loop_over_block(self, lines: Sequence[str]) -> list[str]:
        (last,) = self.last
        head = f"const long {last.index} = b + j;"
        return _nested([("j", "w")], [head, *lines] if any(_has(line, last.index) for line in lines) else lines)

    def _around(self, body: list[str]) -> list[str]:
        """The loops over what is not reduced."""
        threads = self.w.schedule.threads
        loops = [(g.index, g.name) for g in self.outer]
        if self.w.arrays:
            (last,) = self.last
            width = f"const long w = {last.name} - b < BLOCK ? {last.name} - b : BLOCK;"
            block = [f"for (long b = 0; b < {last.name}; b += BLOCK) {{", *_indented([width, *body]), "}"]
            lines = _nested(loops, block)
            depth = len(loops) + 1
        elif not loops:
            if threads and self.region.dims is None and body and body[0] == "#pragma omp simd":
                return ["#pragma omp parallel for simd", *body[1:]]
            return body
        else:
            lines, depth = _nested(loops, body), len(loops)
        if not threads:
            return lines
        return ["#pragma omp parallel for" + (f" collapse({depth})" if depth > 1 else ""), *lines]


def _accumulated(op: str, name: str, value: str) -> str:
    if op == "sum":
        return f"{name} += {value};"
    sign = "<" if op == "max" else ">"
    return f"{name} = {name} {sign} {value} ? {value} : {name};"


def _nested(loops: Sequence[tuple[str, str]], lines: Sequence[str]) -> list[str]:
    if not loops:
        return list(lines)
    (index, size), rest = loops[0], loops[1:]
    inside = _nested(rest, lines)
    head = f"for (long {index} = 0; {index} < {size}; {index}++)"
    if rest or (len(inside) == 1 and not inside[0].startswith("#")):
        return [head, *_indented(inside)]
    return [f"{head} {{", *_indented(inside), "}"]


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _has(line: str, word: str) -> bool:
    return re.search(rf"\b{word}\b", line) is not None


def _attribute_text(path: str) -> str:
    return "self" + "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in path.split("."))


def functions_of(functions: Sequence[Function]) -> list[str]:
    """The C library's functions that have vector forms and are called."""
    return sorted({name for one in functions for name in one.functions if is_expensive(f"{name}(")})
