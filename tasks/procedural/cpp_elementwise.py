"""Elementwise graphs in C++."""

from __future__ import annotations

from tasks.procedural.c_text import statements
from tasks.procedural.cpp_text import Style, kernel, loop, styles
from tasks.procedural.graph import COL, FULL, ROW, Graph
from tasks.procedural.kernels import OUTPUTS, Kernel, loads


def elementwise_kernels(graph: Graph) -> list[Kernel]:
    """One loop over all values, or rows and columns."""
    return [make(graph, style) for style in styles(graph.outputs) for make in (_flat, _by_rows)]


def _flat(graph: Graph, style: Style) -> Kernel:
    shapes = {node.shape for node in graph.inputs}
    at = {FULL: "i", COL: "i % cols", ROW: "i / cols"}
    first = graph.inputs[0].name
    numbers = [("n", f"{first}.numel()")] + ([("cols", f"{first}.shape[1]")] if shapes != {FULL} else [])
    body = [*style.parallel(simd=True), *loop("i", "n", _lines(graph, at, style))]
    note = "one loop over all values" + (", the row and column found by division" if len(numbers) > 1 else "")
    return kernel(graph, style, [("order", "flat")], note, body, numbers=numbers)


def _by_rows(graph: Graph, style: Style) -> Kernel:
    at = {FULL: "o + c", COL: "c", ROW: "r"}
    inner = [*style.simd(), *loop("c", "cols", _lines(graph, at, style))]
    body = [*style.parallel(), *loop("r", "rows", ["long o = r * cols;", *inner])]
    return kernel(graph, style, [("order", "rows")], "a loop over rows and one over columns", body)


def _lines(graph: Graph, at: dict[str, str], style: Style) -> list[str]:
    body = statements(graph.outputs, loads(graph.inputs, at), fast=style.fast)
    stores = [f"{name}[{at[FULL]}] = {value};" for name, value in zip(OUTPUTS, body.results, strict=False)]
    return [*body.lines, *stores]
