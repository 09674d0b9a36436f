"""Scans along rows and transposes in C++."""

from __future__ import annotations

from tasks.procedural.c_text import VARIABLES, statements
from tasks.procedural.cpp_text import LIBM, Style, kernel, loop, styles
from tasks.procedural.graph import COL, FULL, ROW, Graph, Node, nodes
from tasks.procedural.kernels import Kernel, call, function, loads

TOGETHER = (4, 8, 16)
"""Rows that are summed side by side: each sum waits for its last addition, others can go on meanwhile."""
TILES = (8, 16, 32)
_AT = {FULL: "o + c", COL: "c", ROW: "r"}


def scan_kernels(graph: Graph, rows: int) -> list[Kernel]:
    """Running sums: value by value, with the elementwise work before and after in loops of its own, or several rows
    side by side."""
    found = []
    for style in styles(graph.outputs):
        found.append(_scan_plain(graph, style))
        if style.maths != LIBM:
            found.append(_scan_apart(graph, style))
            found += [_scan_together(graph, style, number) for number in TOGETHER if number <= rows]
    return found


def _scanned(graph: Graph) -> Node:
    return next(node for node in nodes(graph.outputs) if node.op == "cumsum")


def _after(graph: Graph, node: Node, style: Style, value: str, place: str) -> list[str]:
    """From a running sum to the output."""
    if graph.outputs[0] is node:
        return [f"{place} = {value};"]
    body = statements(graph.outputs, {node: "v"}, fast=style.fast, names=VARIABLES[1:])
    return [f"float v = {value};", *body.lines, f"{place} = {body.results[0]};"]


def _scan_plain(graph: Graph, style: Style) -> Kernel:
    node = _scanned(graph)
    value = call(node.args[0], _AT)
    inner = loop("c", "cols", [f"s += {value};", *_after(graph, node, style, "s", "out[o + c]")])
    body = [*style.parallel(), *loop("r", "rows", ["long o = r * cols;", "double s = 0;", *inner])]
    functions = [function(node.args[0], "static inline", fast=style.fast)]
    return kernel(graph, style, [("order", "rows")], "a running sum along each row", body, functions=functions)


def _scan_apart(graph: Graph, style: Style) -> Kernel:
    """The running sum cannot be vector code; what is before and after it can."""
    node = _scanned(graph)
    before = node.args[0]
    lines = ["long o = r * cols;"]
    source = call(before, _AT)
    if before.op != "input":
        lines += [*style.simd(), *loop("c", "cols", [f"out[o + c] = {source};"])]
        source = "out[o + c]"
    lines += ["double s = 0;", *loop("c", "cols", [f"s += {source};", "out[o + c] = s;"])]
    if graph.outputs[0] is not node:
        lines += [*style.simd(), *loop("c", "cols", _after(graph, node, style, "out[o + c]", "out[o + c]"))]
    body = [*style.parallel(), *loop("r", "rows", lines)]
    functions = [function(before, "static inline", fast=style.fast)]
    note = "the running sum in a loop of its own, the work before and after it in vector loops over the cached row"
    return kernel(graph, style, [("order", "apart")], note, body, functions=functions)


def _scan_together(graph: Graph, style: Style, number: int) -> Kernel:
    """``number`` rows side by side; the rest of the rows one by one."""
    node = _scanned(graph)
    at = {FULL: "(r + j) * cols + c", COL: "c", ROW: "r + j"}
    step = [f"s[j] += {call(node.args[0], at)};", *_after(graph, node, style, "s[j]", f"out[{at[FULL]}]")]
    full = loop("c", "cols", [*style.simd(), *loop("j", str(number), step)])
    rest = loop("c", "cols", loop("j", "rows - r", step))
    lines = [f"double s[{number}] = {{}};", f"if (rows - r >= {number})", *full, "else", *rest]
    body = [*style.parallel(), *loop("r", "rows", lines, step=number)]
    functions = [function(node.args[0], "static inline", fast=style.fast)]
    note = f"{number} rows side by side, so that no addition waits for the last one"
    return kernel(graph, style, [("together", number)], note, body, functions=functions)


def transpose_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """In the order of reads, in the order of writes, or tile by tile."""
    found = []
    for style in styles(graph.outputs):
        if style.maths == LIBM:
            found += [_transpose_plain(graph, style, reads) for reads in (True, False)]
        found += [_transpose_tiled(graph, style, tile) for tile in TILES if tile < 2 * min(rows, cols)]
    return found


def _without_turn(graph: Graph) -> tuple[Node, Node]:
    """What is computed before the transpose, and the transpose."""
    node = next(node for node in nodes(graph.outputs) if node.op == "transpose")
    return node.args[0], node


def _value(graph: Graph, style: Style, at: dict[str, str]) -> tuple[list[str], str]:
    """Statements and the variable of an output's value: a transpose moves it and changes nothing."""
    before, node = _without_turn(graph)
    body = statements([before], loads(graph.inputs, at), fast=style.fast)
    if graph.outputs[0] is node:
        return list(body.lines), body.results[0]
    used = {line.split()[1] for line in body.lines if line.startswith("float ")}
    rest = [name for name in VARIABLES if name not in used]
    after = statements(graph.outputs, {node: body.results[0]}, fast=style.fast, names=rest)
    return [*body.lines, *after.lines], after.results[0]


def _transpose_plain(graph: Graph, style: Style, reads: bool) -> Kernel:
    lines, value = _value(graph, style, {FULL: "r * cols + c", COL: "c", ROW: "r"})
    inner = [*lines, f"out[c * rows + r] = {value};"]
    if reads:
        body = [*style.parallel(), *loop("r", "rows", loop("c", "cols", inner))]
        note = "reads in order, writes a column apart"
    else:
        body = [*style.parallel(), *loop("c", "cols", loop("r", "rows", inner))]
        note = "writes in order, reads a row apart"
    return kernel(graph, style, [("order", "reads" if reads else "writes")], note, body)


def _transpose_tiled(graph: Graph, style: Style, tile: int) -> Kernel:
    """The values of a tile into a small buffer, row by row, then out of it, column by column."""
    lines, value = _value(graph, style, {FULL: "(r + i) * cols + c + j", COL: "c + j", ROW: "r + i"})
    fill = loop("i", "m", [*style.simd(), *loop("j", "n", [*lines, f"t[i][j] = {value};"])])
    empty = loop("j", "n", [*style.simd(), *loop("i", "m", ["out[(c + j) * rows + r + i] = t[i][j];"])])
    inner = [
        f"float t[{tile}][{tile}];",
        f"long m = rows - r < {tile} ? rows - r : {tile};",
        f"long n = cols - c < {tile} ? cols - c : {tile};",
        *fill,
        *empty,
    ]
    body = [*style.parallel(), *loop("r", "rows", loop("c", "cols", inner, step=tile), step=tile)]
    note = f"tiles of {tile} x {tile} through a buffer in the cache"
    return kernel(graph, style, [("tile", tile)], note, body)
