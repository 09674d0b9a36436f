"""Column reductions in C++: one number a column."""

from __future__ import annotations

from tasks.procedural.c_text import VARIABLES, statements
from tasks.procedural.cpp_text import LIBM, Style, kernel, loop, styles
from tasks.procedural.graph import COL, FULL, ROW, Graph, Node, nodes
from tasks.procedural.kernels import Kernel, loads
from tasks.procedural.lower import REDUCTIONS
from tasks.procedural.operators import COLUMN_REDUCTIONS

BLOCKS = (16, 64, 256)


def column_kernels(graph: Graph, cols: int) -> list[Kernel]:
    """Column by column, or row by row over blocks of columns."""
    found = []
    for style in styles(graph.outputs):
        if style.maths == LIBM:
            found.append(_by_columns(graph, style))
        blocks = [block for block in BLOCKS if block < 2 * cols] or [BLOCKS[0]]
        found += [_blocked(graph, style, block) for block in blocks]
    return found


def _reduction(graph: Graph) -> tuple[Node, str, str]:
    """The node, the reduction that it is, and its variable's type: sums are taken in double."""
    node = next(node for node in nodes(graph.outputs) if node.op in COLUMN_REDUCTIONS)
    kind = {"column_sum": "sum", "column_mean": "sum", "column_max": "max", "column_min": "min"}[node.op]
    return node, kind, "double" if kind == "sum" else "float"


def _taken(kind: str, name: str, value: str) -> str:
    return f"{name} += {value};" if kind == "sum" else f"{name} = f{kind}f({name}, {value});"


def _finish(graph: Graph, style: Style, node: Node, accumulator: str, at: str) -> list[str]:
    """From the accumulator to the output."""
    value = f"{accumulator} / rows" if node.op == "column_mean" else accumulator
    if graph.outputs[0] is node:
        return [f"out[{at}] = {value};"]
    body = statements(graph.outputs, {node: "v"}, fast=style.fast, names=VARIABLES[1:])
    return [f"float v = {value};", *body.lines, f"out[{at}] = {body.results[0]};"]


def _by_columns(graph: Graph, style: Style) -> Kernel:
    node, kind, number = _reduction(graph)
    body = statements(node.args, loads(graph.inputs, {FULL: "r * cols + c", COL: "c", ROW: "r"}), fast=style.fast)
    start = REDUCTIONS[kind].removesuffix("f") if number == "double" else REDUCTIONS[kind]
    lines = [f"{number} s = {start};"]
    lines += loop("r", "rows", [*body.lines, _taken(kind, "s", body.results[0])])
    lines += _finish(graph, style, node, "s", "c")
    return kernel(
        graph,
        style,
        [("order", "columns")],
        "one column after the other, a row apart in memory from value to value",
        [*style.parallel(), *loop("c", "cols", lines)],
    )


def _blocked(graph: Graph, style: Style, block: int) -> Kernel:
    """A block of columns keeps its accumulators in the cache while the rows are read in their order."""
    node, kind, number = _reduction(graph)
    at = {FULL: "r * cols + c + j", COL: "c + j", ROW: "r"}
    body = statements(node.args, loads(graph.inputs, at), fast=style.fast)
    lines = [f"long n = cols - c < {block} ? cols - c : {block};", f"{number} s[{block}];"]
    lines += loop("j", "n", [f"s[j] = {REDUCTIONS[kind]};"])
    taken = [*body.lines, _taken(kind, "s[j]", body.results[0])]
    lines += loop("r", "rows", [*style.simd(), *loop("j", "n", taken)])
    lines += loop("j", "n", _finish(graph, style, node, "s[j]", "c + j"))
    return kernel(
        graph,
        style,
        [("columns", block)],
        f"blocks of {block} columns, whose accumulators stay in the cache while rows are read in their order",
        [*style.parallel(), *loop("c", "cols", lines, step=block)],
    )
