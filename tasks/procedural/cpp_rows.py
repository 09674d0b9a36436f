"""Row reductions and row norms in C++: some passes along each row."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from tasks.procedural.c_text import VARIABLES, row_numbers, statements
from tasks.procedural.cpp_text import LIBM, Style, kernel, loop, styles
from tasks.procedural.graph import COL, FULL, ROW, Graph, Node
from tasks.procedural.kernels import HOISTED, OUTPUTS, Kernel, accumulate, call, function, loads
from tasks.procedural.lower import REDUCTIONS, RowPlan, plan_rows

RECOMPUTED, STAGED, KEPT = "recomputed", "staged", "kept"
"""What a later pass reads: the inputs again; the value before the first reduction, put by in the first pass; the value
that the last reduction summed up, put by as well."""
_NOTES = {
    RECOMPUTED: "each pass computes its values from the inputs, which stay in the cache",
    STAGED: "the first pass keeps its values for the later ones",
    KEPT: "the last reducing pass keeps its values, so that the writing pass does little",
}
LANES = 16
WIDEST_LANES = 96
"""Columns up to which rows side by side are offered: short rows fill no vector."""


@dataclass(frozen=True, kw_only=True)
class _Frame:
    """How places and numbers of a row are written."""

    lanes: int
    """Rows side by side; 1 goes row by row."""

    @property
    def at(self) -> dict[str, str]:
        if self.lanes > 1:
            return {FULL: "(r + j) * cols + c", COL: "c", ROW: "r + j"}
        return {FULL: "o + c", COL: "c", ROW: "r"}

    def row_number(self, name: str) -> str:
        """A variable of a row."""
        return f"{name}[j]" if self.lanes > 1 else name


@dataclass(kw_only=True)
class _Writer:
    """The lines so far, and the text of each node that has one."""

    style: Style
    frame: _Frame
    leaves: dict[Node, str]
    lines: list[str] = field(default_factory=list)
    hoisted: list[str] = field(default_factory=lambda: list(HOISTED))
    counts: dict[str, int] = field(default_factory=dict)

    def hoist(self, targets: Sequence[Node]) -> None:
        """The numbers of the row that the targets read."""
        numbers = row_numbers(targets, self.leaves)
        body = statements(numbers, self.leaves, fast=self.style.fast, names=self.hoisted)
        used = {line.split()[1] for line in body.lines if line.startswith("float ")}
        texts = dict(zip(numbers, body.results, strict=True))
        if self.frame.lanes == 1:
            self.lines += body.lines
        elif numbers:
            texts = {node: f"n{name}[j]" for node, name in texts.items()}
            arrays = sorted(set(body.results))
            self.lines.append(f"float {', '.join(f'n{name}[{self.frame.lanes}]' for name in arrays)};")
            self.each_row([*body.lines, *(f"n{name}[j] = {name};" for name in arrays)])
        self.hoisted = [name for name in self.hoisted if name not in used]
        self.leaves |= texts

    def each_row(self, lines: Sequence[str]) -> None:
        """Lines that are done for each of the rows side by side."""
        if self.frame.lanes == 1:
            self.lines += lines
        else:
            self.lines += [*self.style.simd(), *loop("j", "n", lines)]

    def each_value(self, lines: list[str], marks: Sequence[tuple[str, str]] = ()) -> None:
        """Lines that are done for each value; ``marks`` are the reductions among them."""
        short = _short(lines)
        if self.frame.lanes == 1:
            self.lines += [*self.style.simd(marks), *loop("c", "cols", short)]
        else:
            self.lines += loop("c", "cols", [*self.style.simd(), *loop("j", "n", short)])

    def accumulator(self, reduction: str) -> str:
        """A new variable, with its declaration. One running sum is a double; vector code along a row has many."""
        letter = {"sum": "s", "max": "m", "min": "low"}[reduction]
        self.counts[letter] = self.counts.get(letter, 0) + 1
        name = letter if self.counts[letter] == 1 else f"{letter}{self.counts[letter]}"
        exact = reduction == "sum" and (self.style.maths == LIBM or self.frame.lanes > 1)
        start = "0" if exact else REDUCTIONS[reduction]
        number = "double" if exact else "float"
        if self.frame.lanes == 1:
            self.lines.append(f"{number} {name} = {start};")
        else:
            self.lines.append(f"{number} {name}[{self.frame.lanes}];")
            self.each_row([f"{name}[j] = {start};"])
        return self.frame.row_number(name)


def row_kernels(graph: Graph, cols: int) -> list[Kernel]:
    """Kernels of the families "row_reduction" and "row_norm"."""
    plan = plan_rows(graph)
    found = []
    for style in styles(plan.outputs):
        for staging in _stagings(plan):
            found.append(_rows(graph, plan, style, staging, 1))
            if cols <= WIDEST_LANES and style.maths != LIBM and (staging == RECOMPUTED or _wide(plan)):
                found.append(_rows(graph, plan, style, staging, LANES))
    return found


def _wide(plan: RowPlan) -> bool:
    return any(node.shape == FULL for node in plan.outputs)


def _stagings(plan: RowPlan) -> list[str]:
    """Those that differ."""
    again = len(plan.passes) > 1 or _reaches(plan.outputs, plan.cut)
    found = [RECOMPUTED]
    if again and plan.cut.op != "input":
        found.append(STAGED)
    if _kept(plan) is not None:
        found.append(KEPT)
    return found


def _reaches(targets: Sequence[Node], wanted: Node, stop: Node | None = None) -> bool:
    """Whether the targets read a node other than through a reduction or ``stop``."""
    return any(
        target is wanted or (target.op not in REDUCTIONS and target is not stop and _reaches(target.args, wanted, stop))
        for target in targets
    )


def _kept(plan: RowPlan) -> Node | None:
    """What the last reducing pass computes and the outputs read in place of the cut."""
    for value in (reduction.args[0] for reduction in plan.passes[-1]):
        again = value is not plan.cut and bool(value.args) and _reaches(plan.outputs, value)
        if again and not _reaches(plan.outputs, plan.cut, stop=value):
            return value
    return None


def _rows(graph: Graph, plan: RowPlan, style: Style, staging: str, lanes: int) -> Kernel:
    frame = _Frame(lanes=lanes)
    full = [name for name, node in zip(OUTPUTS, plan.outputs, strict=False) if node.shape == FULL]
    buffered = staging != RECOMPUTED
    buffer = f"{full[0]}[{frame.at[FULL]}]" if full else "t[c]"
    fresh = call(plan.cut, frame.at)
    writer = _Writer(style=style, frame=frame, leaves=loads(graph.inputs, frame.at))
    writer.leaves.pop(plan.cut, None)
    writer.lines += ["long o = r * cols;"] if lanes == 1 else []
    writer.lines += ["float* t = new float[cols];"] if buffered and not full else []
    kept = _kept(plan) if staging == KEPT else None
    for number, reductions in enumerate(plan.passes):
        again = number > 0 and staging == STAGED
        lines = [f"float v = {buffer if again else fresh};"]
        lines += [f"{buffer} = v;"] if staging == STAGED and number == 0 else []
        _reduce(writer, plan, reductions, lines, (kept, buffer) if number == len(plan.passes) - 1 else (None, ""))
    _write(writer, plan, kept or plan.cut, buffer if buffered else fresh)
    writer.lines += ["delete[] t;"] if buffered and not full else []
    functions = [function(plan.cut, "static inline", fast=style.fast)]
    note = f"{_passes(len(plan.passes) + bool(full))} along each row; {_NOTES[staging]}"
    if lanes == 1:
        body = [*style.parallel(), *loop("r", "rows", writer.lines)]
        return kernel(graph, style, [("values", staging)], note, body, functions=functions)
    block = loop("r", "rows", [f"long n = rows - r < {lanes} ? rows - r : {lanes};", *writer.lines], step=lanes)
    note = f"{lanes} short rows side by side, one a vector lane; {note}"
    schedule: list[tuple[str, int | str]] = [("lanes", lanes), ("values", staging)]
    return kernel(graph, style, schedule, note, [*style.parallel(), *block], functions=functions)


def _reduce(
    writer: _Writer,
    plan: RowPlan,
    reductions: Sequence[Node],
    lines: list[str],
    keep: tuple[Node | None, str],
) -> None:
    """One reducing pass; ``lines`` begin it, and ``keep`` is a value to put by and the place for it."""
    values = [node.args[0] for node in reductions]
    writer.hoist([value for value in values if value is not plan.cut])
    names = [writer.accumulator(node.op) for node in reductions]
    body = statements(values, {**writer.leaves, plan.cut: "v"}, fast=writer.style.fast, names=VARIABLES[1:])
    lines = [*lines, *body.lines]
    for node, name, value in zip(reductions, names, body.results, strict=True):
        if node.args[0] is keep[0]:
            lines.append(f"{keep[1]} = {value};")
        lines.append(accumulate(node.op, name, value))
    writer.each_value(lines, [(node.op, name) for node, name in zip(reductions, names, strict=True)])
    writer.leaves |= dict(zip(reductions, names, strict=True))


def _write(writer: _Writer, plan: RowPlan, value: Node, source: str) -> None:
    """The last pass: ``value`` is read from ``source`` into v."""
    at = writer.frame.at
    named = list(zip(OUTPUTS, plan.outputs, strict=False))
    full = [(name, node) for name, node in named if node.shape == FULL]
    writer.hoist([node for _, node in full])
    if full:
        targets = [node for _, node in full]
        body = statements(targets, {**writer.leaves, value: "v"}, fast=writer.style.fast, names=VARIABLES[1:])
        lines = [f"float v = {source};"] if _reaches(targets, value) else []
        lines += body.lines
        lines += [f"{name}[{at[FULL]}] = {text};" for (name, _), text in zip(full, body.results, strict=True)]
        writer.each_value(lines)
    numbers = [(name, node) for name, node in named if node.shape == ROW]
    if numbers:
        body = statements([node for _, node in numbers], writer.leaves, fast=writer.style.fast, names=writer.hoisted)
        stores = [f"{name}[{at[ROW]}] = {text};" for (name, _), text in zip(numbers, body.results, strict=True)]
        writer.each_row([*body.lines, *stores])


def _short(lines: list[str]) -> list[str]:
    """Without a variable that is used once, in the next line."""
    if len(lines) == 2 and lines[0].startswith("float v = ") and len(re.findall(r"\bv\b", lines[1])) == 1:
        value = lines[0].removeprefix("float v = ").removesuffix(";")
        return [re.sub(r"\bv\b", value, lines[1])]
    return lines


def _passes(count: int) -> str:
    return f"{count} pass{'es' * (count > 1)}"
