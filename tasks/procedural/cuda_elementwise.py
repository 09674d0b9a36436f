"""CUDA kernels of elementwise graphs."""

from __future__ import annotations

from tasks.procedural.c_text import statements
from tasks.procedural.cuda_text import (
    PACK,
    SMS,
    block,
    declared,
    global_function,
    indented,
    leaves,
    made,
    outputs,
    python_arguments,
    traffic,
    variables,
)
from tasks.procedural.graph import COL, FULL, ROW, Graph, Node
from tasks.procedural.kernels import Kernel, used_inputs


def elementwise_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """Flat or by rows, one element a thread or several, scalar or 16-byte accesses."""
    n = rows * cols
    found = [_flat(graph, size) for size in (128, 256, 512, 1024)]
    found += [_unrolled(graph, size, count) for size, count in ((128, 4), (256, 4), (256, 8))]
    found += [_packs(graph, size) for size in (64, 128, 256, 512)]
    if n >= 1 << 18:
        found += [_flat(graph, 256, SMS * k) for k in (2, 8)]
        found += [_packs(graph, 256, SMS * k) for k in (2, 8)]
    if cols >= 64 and rows >= 16:
        found += [_by_rows(graph, size) for size in (64, 256) if size <= cols]
    found += [_tile(graph, y) for y in (4, 8, 16)]
    return found


def _body(graph: Graph, full: str, row: str, col: str) -> list[str]:
    """Statements for one element, and the stores."""
    texts = leaves(graph, full, row, col)
    body = statements(graph.outputs, texts, names=["v", *variables(graph)])
    return [
        *body.lines,
        *(f"{name}[{full}] = {value};" for (name, _), value in zip(outputs(graph), body.results, strict=True)),
    ]


def _broadcasts(graph: Graph) -> bool:
    return any(node.shape in (ROW, COL) for node in graph.inputs)


def _sizes(graph: Graph) -> tuple[str, ...]:
    return ("n", "cols") if _broadcasts(graph) else ("n",)


def _call(graph: Graph, grid: str, size: int) -> list[str]:
    """Launch lines of kernels that take n and, where rows or columns matter, cols."""
    first = graph.inputs[0].name
    sizes = ("n", f"{first}.shape[1]") if _broadcasts(graph) else ("n",)
    return [f"n = {first}.numel()", f"kernel.run({grid}, {size}, {python_arguments(graph, *sizes)})"]


def _flat(graph: Graph, size: int, blocks: int = 0) -> Kernel:
    body = _body(graph, "i", "i / cols", "i % cols")
    if blocks:
        loop = "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)"
        lines = block(loop, body)
        grid = str(blocks)
        note = (
            f"{blocks} blocks of {size} threads stride over all elements, neighbouring threads on neighbouring ones; "
        )
        schedule: dict[str, int | str] = {"kind": "grid_stride", "block": size, "blocks": blocks}
    else:
        lines = ["int i = blockIdx.x * blockDim.x + threadIdx.x;", "if (i >= n) return;", *body]
        grid = f"(n + {size - 1}) // {size}"
        note = f"One thread computes one element, {size} threads a block; "
        schedule = {"kind": "flat", "block": size}
    source = [global_function(declared(graph, *_sizes(graph)), lines)]
    return made(graph, schedule, source, _call(graph, grid, size), f"{note}{traffic(graph)}.")


def _unrolled(graph: Graph, size: int, count: int) -> Kernel:
    step = size * count
    lines = [
        f"int first = blockIdx.x * {step} + threadIdx.x;",
        *block(
            f"for (int j = 0; j < {count}; j++)",
            [f"int i = first + j * {size};", *block("if (i < n)", _body(graph, "i", "i / cols", "i % cols"))],
        ),
    ]
    note = (
        f"A block of {size} threads computes {step} elements, each thread {count} of them that lie {size} apart, so "
        f"that accesses stay coalesced and several are under way; {traffic(graph)}."
    )
    parameters = declared(graph, *_sizes(graph)).replace("*", "* __restrict__")
    source = [global_function(parameters, lines)]
    schedule: dict[str, int | str] = {"kind": "unrolled", "block": size, "elements": count}
    return made(graph, schedule, source, _call(graph, f"(n + {step - 1}) // {step}", size), note)


def _function(graph: Graph) -> tuple[list[str], list[Node]]:
    """All outputs as a function ``f`` of the inputs; with two outputs it writes them to its last arguments."""
    inputs = used_inputs(graph.outputs)
    body = statements(graph.outputs, {i: i.name for i in inputs}, names=["v", *variables(graph)])
    given = [f"float {i.name}" for i in inputs]
    if len(graph.outputs) == 1:
        return block(f"__device__ float f({', '.join(given)})", [*body.lines, f"return {body.results[0]};"]), inputs
    given += [f"float& {name}" for name, _ in outputs(graph)]
    stores = [f"{name} = {value};" for (name, _), value in zip(outputs(graph), body.results, strict=True)]
    return block(f"__device__ void f({', '.join(given)})", [*body.lines, *stores]), inputs


def _apply(graph: Graph, inputs: list[Node], texts: dict[Node, str], targets: list[str]) -> str:
    given = [texts[i] for i in inputs]
    if len(targets) == 1:
        return f"{targets[0]} = f({', '.join(given)});"
    return f"f({', '.join([*given, *targets])});"


def _packs(graph: Graph, size: int, blocks: int = 0) -> Kernel:
    function, inputs = _function(graph)
    names = [name for name, _ in outputs(graph)]
    wide = [node.name for node in graph.inputs if node.shape == FULL]
    in_pack = leaves(graph, "j", "(i + j) / cols", "(i + j) % cols")
    in_pack |= {node: f"{node.name}4.v[j]" for node in graph.inputs if node.shape == FULL}
    work = [
        *(f"Pack<4> {name}4 = *(const Pack<4>*)({name} + i);" for name in wide),
        f"Pack<4> {', '.join(f'{name}4' for name in names)};",
        f"for (int j = 0; j < 4; j++) {_apply(graph, inputs, in_pack, [f'{name}4.v[j]' for name in names])}",
        *(f"*(Pack<4>*)({name} + i) = {name}4;" for name in names),
    ]
    rest = _apply(graph, inputs, leaves(graph, "i", "i / cols", "i % cols"), [f"{name}[i]" for name in names])
    choice = ["if (i + 3 < n) {", *indented(work), "} else {", f"    for (; i < n; i++) {rest}", "}"]
    if blocks:
        loop = "for (int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x); i < n; i += 4 * gridDim.x * blockDim.x)"
        lines, grid = block(loop, choice), str(blocks)
        note = f"{blocks} blocks of {size} threads stride over the elements, each thread four at a time"
        schedule: dict[str, int | str] = {"kind": "packs_grid_stride", "block": size, "blocks": blocks, "vector": 4}
    else:
        lines = ["int i = 4 * (blockIdx.x * blockDim.x + threadIdx.x);", *choice]
        grid = f"(n + {4 * size - 1}) // {4 * size}"
        note = f"One thread computes four neighbouring elements, {size} threads a block"
        schedule = {"kind": "packs", "block": size, "vector": 4}
    note += f", with loads and stores of 16 bytes and a scalar loop for the last few; {traffic(graph)}."
    source = [[PACK], function, global_function(declared(graph, *_sizes(graph)), lines)]
    return made(graph, schedule, source, _call(graph, grid, size), note)


def _by_rows(graph: Graph, size: int) -> Kernel:
    lines = [
        "int row = blockIdx.x;",
        *block(
            "for (int col = threadIdx.x; col < cols; col += blockDim.x)",
            ["int i = row * cols + col;", *_body(graph, "i", "row", "col")],
        ),
    ]
    first = graph.inputs[0].name
    launch = [f"rows, cols = {first}.shape", f"kernel.run(rows, {size}, {python_arguments(graph, 'cols')})"]
    note = f"A block of {size} threads computes one row, so that no index is divided; {traffic(graph)}."
    schedule: dict[str, int | str] = {"kind": "block_per_row", "block": size}
    return made(graph, schedule, [global_function(declared(graph, "cols"), lines)], launch, note)


def _tile(graph: Graph, height: int) -> Kernel:
    lines = [
        f"int row = blockIdx.x * {height} + threadIdx.y, col = blockIdx.y * 32 + threadIdx.x;",
        "if (row >= rows || col >= cols) return;",
        "int i = row * cols + col;",
        *_body(graph, "i", "row", "col"),
    ]
    grid = f"((rows + {height - 1}) // {height}, (cols + 31) // 32)"
    call = f"kernel.run({grid}, (32, {height}), {python_arguments(graph, 'rows', 'cols')})"
    note = (
        f"A block computes a tile of {height} rows and 32 columns, a thread one element: a warp reads 128 neighbouring "
        f"bytes and no index is divided; {traffic(graph)}."
    )
    schedule: dict[str, int | str] = {"kind": "tile", "height": height}
    source = [global_function(declared(graph, "rows", "cols"), lines)]
    return made(graph, schedule, source, [f"rows, cols = {graph.inputs[0].name}.shape", call], note)
