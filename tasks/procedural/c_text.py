"""Elementwise operators as statements in C, one a line: the form in which a small model learns them best."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tasks.procedural.graph import ROW, Node
from tasks.procedural.operators import LOW, OPERATORS

VARIABLES = ("v", "w", "p", "q", "e", "g2", "v2", "w2", "p2", "q2", "e2", "v3", "w3", "p3", "q3", "e3")

FEXP = """\
static inline float fexp(float x) {
    float t = fminf(fmaxf(x * 1.442695f, -126.f), 126.f);
    float r = rintf(t), f = t - r;
    union { int i; float v; } n = {((int)r + 127) << 23};
    return n.v * (1 + f * (.693147f + f * (.240222f + f * (.055507f + f * (.009672f + f * .001326f)))));
}"""
"""exp as 2**n times a polynomial in the rest, error 2e-7: with fast-math, loops over it become vector code."""


@dataclass(frozen=True, kw_only=True)
class Lines:
    """Statements and the variables that hold the results."""

    lines: tuple[str, ...]
    results: tuple[str, ...]


def number_text(number: float) -> str:
    """A float32 literal."""
    text = f"{number:g}"
    return f"{text}f" if "." in text or "e" in text else f"{text}.f"


def statements(
    targets: Sequence[Node],
    leaves: Mapping[Node, str],
    *,
    fast: bool = False,
    names: Sequence[str] = VARIABLES,
) -> Lines:
    """C statements that compute the targets.

    Args:
        leaves: text of each node that is at hand: inputs, results of reductions, variables.
        fast: use fexp where an operator has such a text.
        names: for variables, in this order.
    """
    order = [node for node in _until(targets, leaves) if node not in leaves]
    uses = Counter(argument for node in order for argument in node.args)
    uses.update(targets)
    free = iter(names)
    texts = dict(leaves)
    own: set[str] = set()
    gone: Counter[Node] = Counter()
    lines = []
    for node in order:
        expression = _expression(node, texts, fast)
        gone.update(node.args)
        kept = next((a for a in node.args if texts[a] in own and gone[a] == uses[a]), None)
        if kept is not None:
            name = texts[kept]
            lines.append(f"{name} = {expression};")
        else:
            name = next(free)
            own.add(name)
            lines.append(f"float {name} = {expression};")
        texts[node] = name
    return Lines(lines=tuple(lines), results=tuple(texts[target] for target in targets))


def row_numbers(targets: Sequence[Node], leaves: Mapping[Node, str]) -> list[Node]:
    """The row-shaped results below the targets that are no leaves and that elementwise operators read: they are the
    same for a whole row, so a kernel computes them once, before its loop."""
    order = list(_until(targets, leaves))
    read = {argument for node in order if node.shape != ROW for argument in node.args} | set(targets)
    return [node for node in order if node.shape == ROW and node not in leaves and node in read]


def _until(targets: Sequence[Node], leaves: Mapping[Node, str]) -> list[Node]:
    """The nodes below the targets down to the leaves, arguments first."""
    order: list[Node] = []
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node in seen:
            return
        seen.add(node)
        if node not in leaves:
            for argument in node.args:
                visit(argument)
        order.append(node)

    for target in targets:
        visit(target)
    return order


def _operator_texts(node: Node) -> tuple[str, str]:
    operator = LOW.get(node.op) or OPERATORS.get(node.op)
    return (operator.c, operator.fast_c) if operator else ("", "")


def _expression(node: Node, texts: Mapping[Node, str], fast: bool) -> str:
    plain, quick = _operator_texts(node)
    template = quick if fast and quick else plain
    arguments = [texts[argument] for argument in node.args]
    # A leaf such as x[i] is fine in any place; the templates put brackets around nothing else.
    return template.format(*arguments, n=number_text(node.number))
