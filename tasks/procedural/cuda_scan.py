"""CUDA kernels of running sums along rows."""

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

_WARP_SCAN = block(
    "__device__ float warp_scan(float v, int lane)",
    [
        "for (int k = 1; k < 32; k *= 2) {",
        "    float t = __shfl_up_sync(~0u, v, k);",
        "    if (lane >= k) v += t;",
        "}",
        "return v;",
    ],
)
"""Each lane gets the sum of its own value and those of the lanes before it."""

_BLOCK_SCAN = block(
    "__device__ float block_scan(float v)",
    [
        "__shared__ float part[32];",
        "int lane = threadIdx.x % 32, warp = threadIdx.x / 32;",
        "v = warp_scan(v, lane);",
        "__syncthreads();",
        "if (lane == 31) part[warp] = v;",
        "__syncthreads();",
        "for (int k = 0; k < warp; k++) v += part[k];",
        "return v;",
    ],
)
"""The same over a block."""


def scan_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """A thread, a warp or a block per row; one or four columns a thread and step."""
    found = [_serial(graph, size) for size in (32, 64, 128, 256) if cols <= 4096]
    found += [_warp(graph, warps, items) for warps in (1, 4, 8) for items in (1, 4) if items == 1 or cols >= 64]
    for size in (64, 128, 256, 512, 1024):
        found += [_block(graph, size, items) for items in (1, 4, 8) if size * items <= max(64, 2 * cols)]
    return found


def _node(graph: Graph) -> Node:
    return next(node for node in nodes(graph.outputs) if node.op == "cumsum")


def _value(graph: Graph) -> str:
    return called(_node(graph).args[0], leaves(graph, "i", "row", "col"))


def _store(graph: Graph, total: str) -> list[str]:
    """From a running sum to the output."""
    node = _node(graph)
    if graph.outputs[0] is node:
        return [f"out[i] = {total};"]
    body = statements(graph.outputs, {node: total}, names=variables(graph))
    return [*body.lines, f"out[i] = {body.results[0]};"]


def _source(graph: Graph, helpers: list[list[str]], lines: list[str]) -> list[list[str]]:
    return [*helpers, prologue(graph, _node(graph).args[0]), global_function(declared(graph, "rows", "cols"), lines)]


def _launch(graph: Graph, together: int, size: int) -> list[str]:
    grid = f"(rows + {together - 1}) // {together}" if together > 1 else "rows"
    return [
        f"rows, cols = {graph.inputs[0].name}.shape",
        f"kernel.run({grid}, {size}, {python_arguments(graph, 'rows', 'cols')})",
    ]


def _serial(graph: Graph, size: int) -> Kernel:
    lines = [
        "int row = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (row >= rows) return;",
        "double s = 0.;",
        *block(
            "for (int col = 0; col < cols; col++)",
            ["int i = row * cols + col;", f"s += {_value(graph)};", "float v = s;", *_store(graph, "v")],
        ),
    ]
    note = (
        f"One thread walks along a whole row, {size} rows a block, with its sum in double precision; the accesses of a "
        f"warp lie a row apart. {traffic(graph)}."
    )
    schedule: dict[str, int | str] = {"kind": "thread_per_row", "block": size}
    return made(graph, schedule, _source(graph, [], lines), _launch(graph, size, size), note)


def _chunk(graph: Graph, items: int, width: str, scan: str, last: str, carry: list[str]) -> list[str]:
    """The loop over the row in chunks: ``items`` neighbouring columns a thread, a scan of their sums, the carry.

    Args:
        width: threads of the row.
        scan: of ``v``, the thread's sum; gives the sum of the chunk up to and with this thread.
        last: what the first column of a thread is counted by.
        carry: lines after the chunk, of whose sums ``s`` is one in double precision: it may be of thousands.
    """
    at = f"int col = start + {last}, i = row * cols + col;"
    if items == 1:
        store = _store(graph, "t")
        return block(
            f"for (int start = 0; start < cols; start += {width})",
            [
                at,
                f"float v = col < cols ? {_value(graph)} : 0.f;",
                f"v = {scan.format('v')};",
                "float t = s + v;",
                *(block("if (col < cols)", store) if len(store) > 1 else [f"if (col < cols) {store[0]}"]),
                *carry,
            ],
        )
    at = f"int col = start + {last} * {items} + j, i = row * cols + col;"
    return block(
        f"for (int start = 0; start < cols; start += {width} * {items})",
        [
            f"float sums[{items}], own = 0.f;",
            *block(
                f"for (int j = 0; j < {items}; j++)",
                [at, f"if (col < cols) own += {_value(graph)};", "sums[j] = own;"],
            ),
            f"float v = {scan.format('own')};",
            *block(
                f"for (int j = 0; j < {items}; j++)",
                [at, *block("if (col < cols)", ["float t = s + (v - own + sums[j]);", *_store(graph, "t")])],
            ),
            *carry,
        ],
    )


def _items_text(items: int) -> str:
    return "one column a lane" if items == 1 else f"{items} neighbouring columns a lane, summed in registers first"


def _warp(graph: Graph, warps: int, items: int) -> Kernel:
    lines = [
        f"int row = blockIdx.x * {warps} + threadIdx.x / 32, lane = threadIdx.x % 32;",
        "if (row >= rows) return;",
        "double s = 0.;",
        *_chunk(graph, items, "32", "warp_scan({}, lane)", "lane", ["s += __shfl_sync(~0u, v, 31);"]),
    ]
    note = (
        f"A warp scans a row in chunks, {_items_text(items)}, by shuffles, and carries the sum on; a block has "
        f"{warps} of them. {traffic(graph)}."
    )
    schedule: dict[str, int | str] = {"kind": "warp_per_row", "block": warps * 32, "items": items}
    return made(graph, schedule, _source(graph, [_WARP_SCAN], lines), _launch(graph, warps, warps * 32), note)


def _block(graph: Graph, size: int, items: int) -> Kernel:
    lines = [
        "__shared__ float total;",
        "int row = blockIdx.x;",
        "double s = 0.;",
        *_chunk(
            graph,
            items,
            str(size),
            "block_scan({})",
            "threadIdx.x",
            [
                f"if (threadIdx.x == {size - 1}) total = v;",
                "__syncthreads();",
                "s += total;",
            ],
        ),
    ]
    note = (
        f"A block of {size} threads scans a row in chunks of {size * items} columns: {_items_text(items)}, warps by "
        f"shuffles, and shared memory joins the warps; the sum is carried on. {traffic(graph)}."
    )
    schedule: dict[str, int | str] = {"kind": "block_per_row", "block": size, "items": items}
    return made(graph, schedule, _source(graph, [_WARP_SCAN, _BLOCK_SCAN], lines), _launch(graph, 1, size), note)
