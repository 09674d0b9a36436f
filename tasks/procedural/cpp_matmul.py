"""Small matrix products in C++, with the elementwise work before and after in the same kernel."""

from __future__ import annotations

from tasks.procedural.c_text import VARIABLES, statements
from tasks.procedural.cpp_text import LIBM, Style, indented, kernel, loop, styles
from tasks.procedural.graph import COL, FULL, LEFT, RIGHT, ROW, Graph, Node, nodes
from tasks.procedural.kernels import Kernel, call, cols_of, function, loads, rows_of

STRIPS = (16, 32, 64)
"""Columns whose sums are kept in registers or the first cache."""


def matmul_kernels(graph: Graph, cols: int) -> list[Kernel]:
    """Dot products, rows of sums, or strips of columns."""
    found = []
    for style in styles(graph.outputs):
        if style.maths == LIBM:
            found.append(_dots(graph, style))
        found.append(_by_rows(graph, style))
        if style.maths != LIBM:
            found.append(_four_at_once(graph, style))
            found += [_strips(graph, style, strip, number) for strip in STRIPS if strip <= cols for number in (1, 4)]
    return found


def _product(graph: Graph) -> tuple[Node, Node, str]:
    """The product, its left side, and its right side's name."""
    node = next(node for node in nodes(graph.outputs) if node.op == "matmul")
    return node, node.args[0], node.args[1].name


def _numbers(graph: Graph) -> list[tuple[str, str]]:
    return [("rows", rows_of(graph)), ("cols", cols_of(graph)), ("inner", f"{graph.inputs[0].name}.shape[1]")]


def _after(graph: Graph, style: Style, product: str, place: str, at: dict[str, str]) -> list[str]:
    """From a sum to the output."""
    node, _, _ = _product(graph)
    if graph.outputs[0] is node:
        return [f"{place} = {product};"]
    others = [one for one in graph.inputs if one.shape in (FULL, COL, ROW)]
    body = statements(graph.outputs, {node: "v", **loads(others, at)}, fast=style.fast, names=VARIABLES[1:])
    return [f"float v = {product};", *body.lines, f"{place} = {body.results[0]};"]


def _made(graph: Graph, style: Style, choice: tuple[str, int | str], note: str, body: list[str]) -> Kernel:
    _, left, _ = _product(graph)
    functions = [function(left, "static inline", fast=style.fast)]
    return kernel(graph, style, [choice], note, body, functions=functions, numbers=_numbers(graph))


def _dots(graph: Graph, style: Style) -> Kernel:
    _, left, right = _product(graph)
    a = call(left, {LEFT: "r * inner + k"})
    at = {FULL: "r * cols + c", COL: "c", ROW: "r"}
    inner = ["float s = 0.f;", *loop("k", "inner", [f"s += {a} * {right}[k * cols + c];"])]
    inner += _after(graph, style, "s", "out[r * cols + c]", at)
    body = [*style.parallel(), *loop("r", "rows", loop("c", "cols", inner))]
    return _made(graph, style, ("order", "dots"), "a dot product for each value", body)


def _by_rows(graph: Graph, style: Style) -> Kernel:
    _, left, right = _product(graph)
    at = {FULL: "o + c", COL: "c", ROW: "r"}
    lines = ["long o = r * cols;", *loop("c", "cols", ["out[o + c] = 0.f;"])]
    add = [f"out[o + c] += u * {right}[k * cols + c];"]
    lines += loop(
        "k", "inner", [f"float u = {call(left, {LEFT: 'r * inner + k'})};", *style.simd(), *loop("c", "cols", add)]
    )
    lines += _finish(graph, style, at)
    body = [*style.parallel(), *loop("r", "rows", lines)]
    return _made(graph, style, ("order", "rows"), "rows of the right side are scaled and added to a row of sums", body)


def _finish(graph: Graph, style: Style, at: dict[str, str]) -> list[str]:
    node, _, _ = _product(graph)
    if graph.outputs[0] is node:
        return []
    return [*style.simd(), *loop("c", "cols", _after(graph, style, f"out[{at[FULL]}]", f"out[{at[FULL]}]", at))]


def _four_at_once(graph: Graph, style: Style) -> Kernel:
    """Four rows of the right side for one read and write of the sums."""
    _, left, right = _product(graph)
    at = {FULL: "o + c", COL: "c", ROW: "r"}
    lines = ["long o = r * cols, k = 0;", *loop("c", "cols", ["out[o + c] = 0.f;"])]
    four = [f"float u{i} = {call(left, {LEFT: 'r * inner + k' + (f' + {i}' if i else '')})};" for i in range(4)]
    products = " + ".join(f"u{i} * t{i}[c]" for i in range(4))
    pointers = [f"*t{i} = " + (f"t{i - 1} + cols" if i else f"{right} + k * cols") for i in range(4)]
    four += [f"const float {', '.join(pointers)};", *style.simd(), *loop("c", "cols", [f"out[o + c] += {products};"])]
    lines += ["for (; k + 4 <= inner; k += 4) {", *(f"    {line}" for line in four), "}"]
    one = [f"float u = {call(left, {LEFT: 'r * inner + k'})};"]
    one += [*style.simd(), *loop("c", "cols", [f"out[o + c] += u * {right}[k * cols + c];"])]
    lines += ["for (; k < inner; k++) {", *(f"    {line}" for line in one), "}"]
    lines += _finish(graph, style, at)
    body = [*style.parallel(), *loop("r", "rows", lines)]
    note = "four rows of the right side at once for each read and write of a row of sums"
    return _made(graph, style, ("unrolled", 4), note, body)


def _strips(graph: Graph, style: Style, strip: int, number: int) -> Kernel:
    """The sums of ``strip`` columns of ``number`` rows close by, while the right side's rows go past."""
    _, left, right = _product(graph)
    at = {FULL: "(r + i) * cols + c + j", COL: "c + j", ROW: "r + i"}
    functions = [function(left, "static inline", fast=style.fast)]
    sums = [
        f"float u = {call(left, {LEFT: '(r + i) * inner + k'})};",
        *style.simd(),
        *loop("j", "n", [f"s[i][j] += u * {right}[k * cols + c + j];"]),
    ]
    given = [one for one in graph.inputs if one.shape in (LEFT, RIGHT)]
    declared = ", ".join([f"const float* {one.name}" for one in given] + [f"float (*s)[{strip}]"])
    functions.append(
        "\n".join(
            [
                f"static inline void add({declared}, long cols, long inner, long r, long c, long m, long n) {{",
                *indented(loop("k", "inner", loop("i", "m", sums))),
                "}",
            ]
        )
    )
    passed = ", ".join([*(one.name for one in given), "s, cols, inner, r, c"])
    store = [*style.simd(), *loop("j", "n", _after(graph, style, "s[i][j]", f"out[{at[FULL]}]", at))]
    lines = [
        f"long m = rows - r < {number} ? rows - r : {number};",
        f"long n = cols - c < {strip} ? cols - c : {strip};",
        f"float s[{number}][{strip}] = {{}};",
        f"if (m == {number} && n == {strip}) add({passed}, {number}, {strip});",
        f"else add({passed}, m, n);",
        *loop("i", "m", store),
    ]
    body = [*style.parallel(), *loop("r", "rows", loop("c", "cols", lines, step=strip), step=number)]
    note = f"tiles of {number} x {strip} sums, with loops of a fixed length wherever the tile is whole"
    return kernel(
        graph,
        style,
        [("tile_rows", number), ("tile_cols", strip)],
        note,
        body,
        functions=functions,
        numbers=_numbers(graph),
    )
