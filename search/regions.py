"""Which operations of a program one kernel does: pointwise operations around reductions over the same dimensions.

A region has a domain, the shape that it walks over. A value of it is FULL (one for each element of the domain),
REDUCED (one for each element that is left when the reduced dimensions are gone), or INLINE (smaller than the domain
and computed again wherever it is read, such as ``bias + 1``).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from search.program import LEAF, LIBRARY, POINT, REDUCE, VIEW, Node, Program, Size, node_args

FULL, REDUCED, INLINE = "full", "reduced", "inline"
_DTYPES = ("float32", "bool")


@dataclass(kw_only=True)
class Region:
    """What one kernel computes."""

    domain: tuple[Size, ...]
    dims: tuple[int, ...] | None = None
    """Reduced ones, a run of neighbours; None without reductions."""
    forms: dict[Node, str] = field(default_factory=dict)
    """Of each value, in the order of computation."""
    outputs: list[Node] = field(default_factory=list)
    """What is written to memory."""

    @property
    def kept_shape(self) -> tuple[Size, ...]:
        """Of a REDUCED value that keeps its dimensions."""
        ones = (1,) * len(self.domain[0]) if self.domain else ()
        return tuple(ones if d in (self.dims or ()) else size for d, size in enumerate(self.domain))

    @property
    def dropped_shape(self) -> tuple[Size, ...]:
        """Of one that does not."""
        return tuple(size for d, size in enumerate(self.domain) if d not in (self.dims or ()))


Step = Region | Node
"""A kernel, or an operation that stays PyTorch's."""


def partition(program: Program) -> list[Step]:
    """The program as kernels and library calls, each after what it needs."""
    users: dict[Node, list[Node]] = {}
    for node in program.nodes:
        for argument in node_args(node):
            users.setdefault(argument, []).append(node)
    done = {node for node in program.nodes if node.kind == LEAF}
    steps: list[Step] = []
    while True:
        wanted = _wanted(program, done)
        pending = [node for node in program.nodes if node in wanted and node.kind in (POINT, REDUCE, LIBRARY)]
        if not pending:
            return steps
        ready = [node for node in pending if all(argument.root in done for argument in node_args(node))]
        call = next((node for node in ready if node.kind == LIBRARY or not _can_start(node)), None)
        if call is None:
            region = _grown(ready, pending, done)
            for node, form in region.forms.items():
                if form != INLINE and _seen_outside(node, region, users, program, wanted):
                    region.outputs.append(node)
            if region.outputs and all(node.dtype == "float32" for node in region.outputs):
                steps.append(region)
                done |= {node for node, form in region.forms.items() if form != INLINE}
                continue
            call = ready[0]  # nothing that a kernel could write: PyTorch does it
        steps.append(call)
        done.add(call)


def _seen_outside(
    node: Node, region: Region, users: dict[Node, list[Node]], program: Program, wanted: set[Node]
) -> bool:
    """Whether anything but the region reads the value."""
    if node in program.outputs:
        return True
    for user in users.get(node, []):
        if user.kind == VIEW and user in wanted:
            if not _is_inside(user, region) or _seen_outside(user, region, users, program, wanted):
                return True
        elif user in wanted and user not in region.forms:
            return True
    return False


def _wanted(program: Program, done: set[Node]) -> set[Node]:
    """What the outputs still need."""
    found: set[Node] = set()
    waiting = list(program.outputs)
    while waiting:
        node = waiting.pop()
        if node not in found and node not in done:
            found.add(node)
            waiting += node_args(node)
    return found


def _can_start(node: Node) -> bool:
    if any(argument.dtype not in _DTYPES for argument in node_args(node)) or not node.shape:
        return node.kind == REDUCE and bool(node.args[0].shape) and node.args[0].dtype == "float32"
    return node.kind == POINT or _is_run(node.dims)


def _is_run(dims: Sequence[int]) -> bool:
    return list(dims) == list(range(dims[0], dims[-1] + 1)) if dims else False


def _grown(ready: Sequence[Node], pending: Sequence[Node], done: set[Node]) -> Region:
    seed = max(ready, key=lambda node: math.prod(size[0] for size in _domain_of(node)))
    region = Region(domain=_domain_of(seed))
    changed = True
    while changed:
        changed = False
        for node in pending:
            if node not in region.forms and node.kind in (POINT, REDUCE) and _join(region, node, done):
                changed = True
    return region


def _domain_of(node: Node) -> tuple[Size, ...]:
    return node.args[0].shape if node.kind == REDUCE else node.shape


def _join(region: Region, node: Node, done: set[Node]) -> bool:
    """Take the node into the region where that is possible."""
    arguments = list(node_args(node))
    if any(a.dtype not in _DTYPES for a in arguments):
        return False
    known = [_source(region, a, done) for a in arguments]
    if any(form is None for form in known):
        return False
    if node.kind == REDUCE:
        fits = node.args[0].shape == region.domain and known[0] in ("leaf", FULL) and _is_run(node.dims)
        if not fits or (region.dims is not None and region.dims != node.dims):
            return False
        region.dims = node.dims
        region.forms[node] = REDUCED
        return True
    form = _form(region, node, arguments, known)
    if form is None:
        return False
    region.forms[node] = form
    return True


def _source(region: Region, node: Node, done: set[Node]) -> str | None:
    """Where an argument comes from: "leaf" (memory), a form of the region, or None for neither."""
    if node in region.forms:
        return region.forms[node]
    if node.root in done:
        return "leaf"
    if node.kind == VIEW and _is_inside(node, region):
        return FULL if node.shape == region.domain and region.forms[node.root] == FULL else REDUCED
    return None


def _is_inside(view: Node, region: Region) -> bool:
    """Whether a view of a value of the region is at each place that value: dimensions of size 1 came or went, or it
    was expanded along what was reduced."""
    root = view.root
    form = region.forms.get(root)
    if form == FULL:
        return view.shape == region.domain == root.shape
    if form == REDUCED:
        shapes = (region.kept_shape, region.dropped_shape)
        if view.shape in shapes:
            return True
        return view.shape == region.domain and view.args[0].shape == region.kept_shape
    return False


def _form(region: Region, node: Node, arguments: Sequence[Node], known: Sequence[str | None]) -> str | None:
    if node.shape == region.domain:
        aligned = all(
            where == FULL
            or (where == REDUCED and a.shape in (region.kept_shape, region.domain))
            or where in ("leaf", INLINE)
            for a, where in zip(arguments, known, strict=True)
        )
        return FULL if aligned else None
    if all(where in ("leaf", INLINE) for where in known) and fits_into(node.shape, region.domain):
        return INLINE
    if region.dims is None:
        return None
    same_rank = node.op == "clone" or all(
        where != REDUCED or len(a.shape) == len(node.shape) for a, where in zip(arguments, known, strict=True)
    )
    shapes = (region.kept_shape, region.dropped_shape)
    if node.shape in shapes and same_rank and REDUCED in known and all(where in ("leaf", REDUCED) for where in known):
        return REDUCED
    return None


def fits_into(shape: Sequence[Size], domain: Sequence[Size]) -> bool:
    """Whether a shape broadcasts to the domain."""
    if len(shape) > len(domain):
        return False
    return all(size == of or set(size) == {1} for size, of in zip(reversed(shape), reversed(domain), strict=False))


def places(node: Node, region: Region) -> tuple[int, ...]:
    """The dimension of the domain that each of the node's dimensions lies along."""
    if region.dims is not None and len(node.shape) != len(region.domain) and node.shape == region.dropped_shape:
        return tuple(d for d in range(len(region.domain)) if d not in region.dims)
    shift = len(region.domain) - len(node.shape)
    return tuple(d + shift for d in range(len(node.shape)))


def levels(region: Region) -> dict[Node, int]:
    """How many passes over the reduced dimensions must be over before a value is known."""
    found: dict[Node, int] = {}
    for node in region.forms:
        below = max((found.get(a.root, 0) for a in _inner_args(node, region)), default=0)
        found[node] = below + (node.kind == REDUCE)
    return found


def _inner_args(node: Node, region: Region) -> Iterator[Node]:
    for argument in node_args(node):
        if argument.root in region.forms:
            yield argument
