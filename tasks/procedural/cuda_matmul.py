"""CUDA kernels of products with elementwise operators before and after."""

from __future__ import annotations

from tasks.procedural.c_text import statements
from tasks.procedural.cuda_text import (
    block,
    called,
    declared,
    global_function,
    leaves,
    made,
    prologue,
    python_arguments,
    variables,
)
from tasks.procedural.graph import LEFT, RIGHT, Graph, Node, nodes
from tasks.procedural.kernels import Kernel, cols_of


def matmul_kernels(graph: Graph, rows: int, cols: int, inner: int) -> list[Kernel]:
    """Direct, several outputs a thread, tiles in shared memory, tiles in registers."""
    found = [_direct(graph, x, y) for x, y in ((32, 4), (32, 8), (16, 16), (64, 4))]
    found += [_column(graph, size, count) for size in (64, 128) for count in (4, 8, 16)]
    found += [_shared(graph, side) for side in (8, 16, 32)]
    found += [_registers(graph, 64, 4, depth) for depth in (8, 16, 32)]
    found += [_registers(graph, 32, 2, 32)]
    found += [_registers(graph, 128, 8, depth) for depth in (8, 16)]
    return found


def _node(graph: Graph) -> Node:
    return next(node for node in nodes(graph.outputs) if node.op == "matmul")


def _left(graph: Graph, row: str, at: str) -> str:
    """One number of the left factor, after what is applied to it."""
    node = _node(graph).args[0]
    texts = {i: f"{i.name}[{row} * inner + {at}]" for i in graph.inputs if i.shape == LEFT}
    return called(node, texts)


def _right(graph: Graph, at: str, col: str) -> str:
    name = next(node.name for node in graph.inputs if node.shape == RIGHT)
    return f"{name}[{at} * cols + {col}]"


def _store(graph: Graph, total: str) -> list[str]:
    """From the product's number to the output."""
    node = _node(graph)
    if graph.outputs[0] is node:
        return [f"out[row * cols + col] = {total};"]
    texts = leaves(graph, "row * cols + col", "row", "col") | {node: total}
    body = statements(graph.outputs, texts, names=["v", *variables(graph)])
    return [*body.lines, f"out[row * cols + col] = {body.results[0]};"]


def _kernel(
    graph: Graph, schedule: dict[str, int | str], lines: list[str], grid: tuple[int, int], size: str, note: str
) -> Kernel:
    """``grid``: columns and rows that a block computes."""
    first = graph.inputs[0].name
    blocks = [
        name if step == 1 else f"({name} + {step - 1}) // {step}"
        for name, step in zip(("cols", "rows"), grid, strict=True)
    ]
    launch = [
        f"rows, inner = {first}.shape",
        f"cols = {cols_of(graph)}",
        f"kernel.run(({blocks[0]}, {blocks[1]}), {size}, {python_arguments(graph, 'rows', 'cols', 'inner')})",
    ]
    source = [prologue(graph, _node(graph).args[0]), global_function(declared(graph, "rows", "cols", "inner"), lines)]
    return made(graph, schedule, source, launch, note)


def _direct(graph: Graph, x: int, y: int) -> Kernel:
    lines = [
        f"int row = blockIdx.y * {y} + threadIdx.y, col = blockIdx.x * {x} + threadIdx.x;",
        "if (row >= rows || col >= cols) return;",
        "float s = 0.f;",
        f"for (int k = 0; k < inner; k++) s += {_left(graph, 'row', 'k')} * {_right(graph, 'k', 'col')};",
        *_store(graph, "s"),
    ]
    note = (
        f"One thread computes one number of the product, {x} x {y} threads a block, and reads a row and a column for "
        "it: two loads, from cache mostly, for each multiply-add."
    )
    return _kernel(graph, {"kind": "direct", "x": x, "y": y}, lines, (x, y), f"({x}, {y})", note)


def _column(graph: Graph, size: int, count: int) -> Kernel:
    lines = [
        f"int top = blockIdx.y * {count}, col = blockIdx.x * {size} + threadIdx.x;",
        "if (col >= cols) return;",
        f"float s[{count}] = {{}};",
        *block(
            "for (int k = 0; k < inner; k++)",
            [
                f"float t = {_right(graph, 'k', 'col')};",
                f"for (int j = 0; j < {count}; j++) s[j] += {_left(graph, 'min(top + j, rows - 1)', 'k')} * t;",
            ],
        ),
        *block(
            f"for (int j = 0; j < {count}; j++)",
            ["int row = top + j;", "if (row >= rows) return;", *_store(graph, "s[j]")],
        ),
    ]
    note = (
        f"One thread computes {count} numbers of a column, {size} threads a block: a number of the right factor is "
        f"read once for {count} multiply-adds, and the left factor's are the same for the whole warp."
    )
    return _kernel(graph, {"kind": "column", "block": size, "count": count}, lines, (size, count), str(size), note)


def _shared(graph: Graph, side: int) -> Kernel:
    lines = [
        f"__shared__ float left[{side}][{side}], right[{side}][{side}];",
        "int i = threadIdx.y, j = threadIdx.x;",
        f"int row = blockIdx.y * {side} + i, col = blockIdx.x * {side} + j;",
        "float s = 0.f;",
        *block(
            f"for (int start = 0; start < inner; start += {side})",
            [
                f"left[i][j] = row < rows && start + j < inner ? {_left(graph, 'row', 'start + j')} : 0.f;",
                f"right[i][j] = col < cols && start + i < inner ? {_right(graph, '(start + i)', 'col')} : 0.f;",
                "__syncthreads();",
                f"for (int k = 0; k < {side}; k++) s += left[i][k] * right[k][j];",
                "__syncthreads();",
            ],
        ),
        "if (row >= rows || col >= cols) return;",
        *_store(graph, "s"),
    ]
    note = (
        f"A block of {side} x {side} threads computes a tile, a thread one number; tiles of both factors lie in shared "
        f"memory, so that each number is read from memory once for {side} multiply-adds."
    )
    return _kernel(graph, {"kind": "shared", "side": side}, lines, (side, side), f"({side}, {side})", note)


def _registers(graph: Graph, side: int, each: int, depth: int) -> Kernel:
    threads = (side // each) ** 2
    across = side // each
    left, right = _left(graph, "row", "at"), _right(graph, "at", "col")
    lines = [
        f"__shared__ float left[{depth}][{side} + 4], right[{depth}][{side}];",
        f"int t = threadIdx.x, top = blockIdx.y * {side}, first = blockIdx.x * {side};",
        f"float s[{each}][{each}] = {{}};",
        *block(
            f"for (int start = 0; start < inner; start += {depth})",
            [
                *block(
                    f"for (int k = t; k < {side * depth}; k += {threads})",
                    [
                        f"int row = top + k / {depth}, at = start + k % {depth};",
                        f"left[k % {depth}][k / {depth}] = row < rows && at < inner ? {left} : 0.f;",
                    ],
                ),
                *block(
                    f"for (int k = t; k < {side * depth}; k += {threads})",
                    [
                        f"int at = start + k / {side}, col = first + k % {side};",
                        f"right[k / {side}][k % {side}] = at < inner && col < cols ? {right} : 0.f;",
                    ],
                ),
                "__syncthreads();",
                f"for (int k = 0; k < {depth}; k++)",
                f"    for (int i = 0; i < {each}; i++)",
                f"        for (int j = 0; j < {each}; j++)",
                f"            s[i][j] += left[k][t / {across} * {each} + i] * right[k][t % {across} + j * {across}];",
                "__syncthreads();",
            ],
        ),
        f"for (int i = 0; i < {each}; i++)",
        *(
            f"    {line}"
            for line in block(
                f"for (int j = 0; j < {each}; j++)",
                [
                    f"int row = top + t / {across} * {each} + i, col = first + t % {across} + j * {across};",
                    *block("if (row < rows && col < cols)", _store(graph, "s[i][j]")),
                ],
            )
        ),
    ]
    note = (
        f"A block of {threads} threads computes a tile of {side} x {side}, a thread {each} x {each} numbers in "
        f"registers; {depth} columns and rows of the factors lie in shared memory at a time, and {2 * each} loads from "
        f"there serve {each * each} multiply-adds; padding spreads what is written over the banks."
    )
    schedule: dict[str, int | str] = {"kind": "registers", "side": side, "each": each, "depth": depth}
    return _kernel(graph, schedule, lines, (side, side), str(threads), note)
