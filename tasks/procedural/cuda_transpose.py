"""CUDA kernels of transposes with elementwise operators before and after."""

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
    traffic,
    variables,
)
from tasks.procedural.graph import Graph, Node, nodes
from tasks.procedural.kernels import Kernel


def transpose_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """Direct, with coalesced reads or writes, or through tiles in shared memory."""
    found = [_direct(graph, size, writes=writes) for size in (128, 256, 512) for writes in (False, True)]
    found += [_patch(graph, height) for height in (8, 32)]
    found += [_tile(graph, 32, height) for height in (4, 8, 16, 32)]
    found += [_tile(graph, 32, 8, padding=0), _tile(graph, 16, 16), _tile(graph, 64, 8)]
    return found


def _node(graph: Graph) -> Node:
    return next(node for node in nodes(graph.outputs) if node.op == "transpose")


def _value(graph: Graph, index: str = "row * cols + col") -> str:
    return called(_node(graph).args[0], leaves(graph, index, "row", "col"))


def _store(graph: Graph, place: str) -> list[str]:
    """From ``v`` to the output."""
    node = _node(graph)
    if graph.outputs[0] is node:
        return [f"{place} = v;"]
    body = statements(graph.outputs, {node: "v"}, names=variables(graph))
    return [*body.lines, f"{place} = {body.results[0]};"]


def _kernel(graph: Graph, schedule: dict[str, int | str], lines: list[str], grid: str, size: str, note: str) -> Kernel:
    source = [prologue(graph, _node(graph).args[0]), global_function(declared(graph, "rows", "cols"), lines)]
    launch = [
        f"rows, cols = {graph.inputs[0].name}.shape",
        f"kernel.run({grid}, {size}, {python_arguments(graph, 'rows', 'cols')})",
    ]
    return made(graph, schedule, source, launch, f"{note} {traffic(graph)}.")


def _direct(graph: Graph, size: int, *, writes: bool) -> Kernel:
    at = "int row = i % rows, col = i / rows;" if writes else "int row = i / cols, col = i % cols;"
    value = _value(graph) if writes else _value(graph, "i")
    lines = [
        "int i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= rows * cols) return;",
        at,
        f"float v = {value};",
        *_store(graph, "out[i]" if writes else "out[col * rows + row]"),
    ]
    good, bad = ("writes", "reads") if writes else ("reads", "writes")
    note = (
        f"One thread moves one element, {size} threads a block: neighbouring threads make neighbouring {good}, their "
        f"{bad} lie a {'row' if writes else 'column'} apart and use a small part of each memory sector;"
    )
    schedule: dict[str, int | str] = {"kind": "direct", "coalesced": good, "block": size}
    return _kernel(graph, schedule, lines, f"(rows * cols + {size - 1}) // {size}", str(size), note)


def _patch(graph: Graph, height: int) -> Kernel:
    lines = [
        f"int row = blockIdx.x * {height} + threadIdx.y, col = blockIdx.y * 32 + threadIdx.x;",
        "if (row >= rows || col >= cols) return;",
        f"float v = {_value(graph)};",
        *_store(graph, "out[col * rows + row]"),
    ]
    note = (
        f"A block of 32 x {height} threads moves a patch of {height} rows and 32 columns without shared memory: reads "
        f"are coalesced, and {height} neighbouring numbers of an output row are written by one block;"
    )
    grid = f"((rows + {height - 1}) // {height}, (cols + 31) // 32)"
    return _kernel(graph, {"kind": "patch", "height": height}, lines, grid, f"(32, {height})", note)


def _tile(graph: Graph, side: int, height: int, padding: int = 1) -> Kernel:
    width = f"{side} + 1" if padding else str(side)
    fill = block(
        f"for (int k = threadIdx.y; k < {side}; k += {height})",
        [
            "int row = top + k;",
            f"if (row < rows && col < cols) tile[k][threadIdx.x] = {_value(graph)};",
        ],
    )
    drain = block(
        f"for (int k = threadIdx.y; k < {side}; k += {height})",
        [
            "int col = left + k;",
            *block(
                "if (row < rows && col < cols)",
                ["float v = tile[threadIdx.x][k];", *_store(graph, "out[col * rows + row]")],
            ),
        ],
    )
    lines = [
        f"__shared__ float tile[{side}][{width}];",
        f"int top = blockIdx.x * {side}, left = blockIdx.y * {side};",
        "int col = left + threadIdx.x, row = top + threadIdx.x;",
        *fill,
        "__syncthreads();",
        *drain,
    ]
    why = (
        "one column of padding keeps the columns of the tile in different banks"
        if padding
        else "without padding, its columns lie in one bank and their reads take turns"
    )
    note = (
        f"A block of {side} x {height} threads turns a tile of {side} x {side} in shared memory, so that reads and "
        f"writes are both coalesced; {why};"
    )
    schedule: dict[str, int | str] = {"kind": "tile", "side": side, "height": height, "padding": padding}
    grid = f"((rows + {side - 1}) // {side}, (cols + {side - 1}) // {side})"
    return _kernel(graph, schedule, lines, grid, f"({side}, {height})", note)
