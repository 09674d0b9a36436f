"""CUDA kernels of column reductions."""

from __future__ import annotations

from tasks.procedural.c_text import statements
from tasks.procedural.cuda_text import (
    PACK,
    SMS,
    START,
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
from tasks.procedural.graph import FULL, Graph, Node, nodes
from tasks.procedural.kernels import Kernel, accumulate
from tasks.procedural.operators import COLUMN_REDUCTIONS

_KIND = {"column_sum": "sum", "column_mean": "sum", "column_max": "max", "column_min": "min"}
_NAME = {"sum": "s", "max": "m", "min": "low"}


def column_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """A thread or a strip of threads per column; the rows split over blocks where columns are few."""
    found = [_serial(graph, size) for size in ((32, 64, 128, 256) if cols >= 4096 else (64,))]
    found += [_tile(graph, height) for height in (4, 8, 16, 32)]
    found += [_packs(graph, height) for height in (8, 16) if cols >= 128]
    found += [_split(graph, chunk) for chunk in _chunks(rows, (cols + 255) // 256)]
    found += [_split_tile(graph, chunk) for chunk in _chunks(rows, (cols + 31) // 32)]
    if _reduction(graph) == "sum":
        found += [_atomic(graph, chunk) for chunk in _chunks(rows, (cols + 31) // 32)]
    return found


def _chunks(rows: int, strips: int) -> list[int]:
    """Rows of a block, a power of two each, so that there are about 1, 4 and 16 blocks for a multiprocessor."""
    wanted = [rows * strips // (SMS * k) for k in (1, 4, 16)]
    return sorted({1 << max(5, min(12, number.bit_length() - 1)) for number in wanted if number < rows})


def _node(graph: Graph) -> Node:
    return next(node for node in nodes(graph.outputs) if node.op in COLUMN_REDUCTIONS)


def _reduction(graph: Graph) -> str:
    return _KIND[_node(graph).op]


def _texts(graph: Graph, row: str) -> dict[Node, str]:
    return leaves(graph, f"{row} * cols + col", row, "col")


def _start(kind: str) -> str:
    """The accumulator; a thread may sum thousands of numbers, and does so in double precision."""
    return "double s = 0.;" if kind == "sum" else f"float {_NAME[kind]} = {START[kind]};"


def _finish(graph: Graph, value: str) -> list[str]:
    """From the reduced value to the output."""
    node = _node(graph)
    text = f"{value} / rows" if node.op == "column_mean" else value
    if graph.outputs[0] is node:
        return [f"out[col] = {text};"]
    body = statements(graph.outputs, {node: "v"}, names=variables(graph))
    return [f"float v = {text};", *body.lines, f"out[col] = {body.results[0]};"]


def _walk(graph: Graph, loop: str) -> list[str]:
    kind = _reduction(graph)
    value = called(_node(graph).args[0], _texts(graph, "row"))
    return [f"{loop} {accumulate(kind, _NAME[kind], value)}"]


def _sizes_line(graph: Graph) -> str:
    return f"rows, cols = {graph.inputs[0].name}.shape"


def _serial(graph: Graph, size: int) -> Kernel:
    kind = _reduction(graph)
    lines = [
        "int col = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (col >= cols) return;",
        _start(kind),
        *_walk(graph, "for (int row = 0; row < rows; row++)"),
        *_finish(graph, _NAME[kind]),
    ]
    source = [prologue(graph, _node(graph).args[0]), global_function(declared(graph, "rows", "cols"), lines)]
    call = f"kernel.run((cols + {size - 1}) // {size}, {size}, {python_arguments(graph, 'rows', 'cols')})"
    note = (
        f"One thread walks down one column, {size} columns a block, so that a warp reads neighbouring bytes and there "
        f"are as many threads as columns; {traffic(graph)}."
    )
    return made(graph, {"kind": "thread_per_column", "block": size}, source, [_sizes_line(graph), call], note)


def _folded(kind: str, height: int) -> list[str]:
    """The first row of threads takes in what the others found."""
    name = _NAME[kind]
    return [
        f"part[threadIdx.y][threadIdx.x] = {name};",
        "__syncthreads();",
        "if (threadIdx.y > 0 || col >= cols) return;",
        f"for (int k = 1; k < {height}; k++) {accumulate(kind, name, 'part[k][threadIdx.x]')}",
    ]


def _tile(graph: Graph, height: int) -> Kernel:
    kind = _reduction(graph)
    lines = [
        f"__shared__ float part[{height}][32];",
        "int col = blockIdx.x * 32 + threadIdx.x;",
        _start(kind),
        "if (col < cols)",
        *(f"    {line}" for line in _walk(graph, f"for (int row = threadIdx.y; row < rows; row += {height})")),
        *_folded(kind, height),
        *_finish(graph, _NAME[kind]),
    ]
    source = [prologue(graph, _node(graph).args[0]), global_function(declared(graph, "rows", "cols"), lines)]
    call = f"kernel.run((cols + 31) // 32, (32, {height}), {python_arguments(graph, 'rows', 'cols')})"
    note = (
        f"A block of 32 x {height} threads reduces 32 columns: {height} warps take turns at the rows, reading 128 "
        f"neighbouring bytes each, and shared memory combines them; {traffic(graph)}."
    )
    return made(graph, {"kind": "tile", "height": height}, source, [_sizes_line(graph), call], note)


def _packs(graph: Graph, height: int) -> Kernel:
    """Four columns a thread, by loads of 16 bytes where the columns allow it."""
    kind, node = _reduction(graph), _node(graph)
    name = _NAME[kind]
    texts = leaves(graph, "", "row", "col + j") | {i: f"{i.name}4.v[j]" for i in graph.inputs if i.shape == FULL}
    loads = [
        f"Pack<W> {i.name}4 = *(const Pack<W>*)({i.name} + row * cols + col);" for i in graph.inputs if i.shape == FULL
    ]
    take = accumulate(kind, f"{name}[j]", called(node.args[0], texts))
    walk = block(
        f"for (int row = threadIdx.y; row < rows && col < cols; row += {height})",
        [*loads, f"for (int j = 0; j < W; j++) {take}"],
    )
    lines = [
        f"__shared__ float part[{height}][32 * W];",
        "int col = (blockIdx.x * 32 + threadIdx.x) * W;",
        f"{'double' if kind == 'sum' else 'float'} {name}[W];",
        f"for (int j = 0; j < W; j++) {name}[j] = {START[kind]};",
        *walk,
        f"for (int j = 0; j < W; j++) part[threadIdx.y][threadIdx.x * W + j] = {name}[j];",
        "__syncthreads();",
        "int t = threadIdx.y * 32 + threadIdx.x;",
        "col = blockIdx.x * 32 * W + t;",
        "if (t >= 32 * W || col >= cols) return;",
        "float v = part[0][t];",
        f"for (int k = 1; k < {height}; k++) {accumulate(kind, 'v', 'part[k][t]')}",
    ]
    finish = _finish(graph, "v")
    lines += [line.replace("float v = v", "v = v") for line in finish if line != "float v = v;"]
    parameters, given = declared(graph, "rows", "cols"), ", ".join([*(i.name for i in graph.inputs), "out"])
    source = [
        [PACK],
        prologue(graph, node.args[0]),
        block(f"template <int W> __device__ void work({parameters})", lines),
        global_function(
            parameters, [f"if (cols % 4 == 0) work<4>({given}, rows, cols);", f"else work<1>({given}, rows, cols);"]
        ),
    ]
    launch = [
        _sizes_line(graph),
        "wide = cols if cols % 4 else cols // 4",
        f"kernel.run((wide + 31) // 32, (32, {height}), {python_arguments(graph, 'rows', 'cols')})",
    ]
    note = (
        f"A block of 32 x {height} threads reduces 128 columns, four a thread by loads of 16 bytes where the columns "
        f"are a multiple of four; shared memory combines its {height} warps; {traffic(graph)}."
    )
    return made(graph, {"kind": "tile", "height": height, "vector": 4}, source, launch, note)


def _second(graph: Graph) -> list[str]:
    """A kernel that combines the parts: one a chunk of rows, each with all columns."""
    kind = _reduction(graph)
    lines = [
        "int col = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (col >= cols) return;",
        _start(kind),
        f"for (int k = 0; k < count; k++) {accumulate(kind, _NAME[kind], 'parts[k * cols + col]')}",
        *_finish(graph, _NAME[kind]),
    ]
    return global_function("const float* parts, float* out, int count, int rows, int cols", lines, "combine")


def _split_launch(graph: Graph, chunk: int, grid: str, size: str) -> list[str]:
    first = graph.inputs[0].name
    given = python_arguments(graph, "rows", "cols").replace("out, ", "parts, ")
    return [
        _sizes_line(graph),
        f"count = (rows + {chunk - 1}) // {chunk}",
        f"parts = {first}.new_empty(count, cols)",
        f"kernel.run({grid}, {size}, {given})",
        "kernel.combine((cols + 63) // 64, 64, parts, out, count, rows, cols)",
    ]


def _split(graph: Graph, chunk: int) -> Kernel:
    kind = _reduction(graph)
    lines = [
        "int col = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (col >= cols) return;",
        f"int top = blockIdx.y * {chunk}, last = min(rows, top + {chunk});",
        _start(kind),
        *_walk(graph, "for (int row = top; row < last; row++)"),
        f"parts[blockIdx.y * cols + col] = {_NAME[kind]};",
    ]
    parameters = declared(graph, "rows", "cols").replace("float* out", "float* parts")
    source = [prologue(graph, _node(graph).args[0]), global_function(parameters, lines), _second(graph)]
    launch = _split_launch(graph, chunk, "((cols + 255) // 256, count)", "256")
    note = (
        f"The rows are split into chunks of {chunk}: one thread walks down one column of a chunk, and a second kernel "
        f"combines the chunks, so that many more threads than columns read at once; {traffic(graph)}."
    )
    return made(graph, {"kind": "split", "chunk": chunk}, source, launch, note)


def _strip(graph: Graph, chunk: int) -> list[str]:
    """Eight warps reduce 32 columns of a chunk; the first warp has the result."""
    kind = _reduction(graph)
    return [
        "__shared__ float part[8][32];",
        "int col = blockIdx.x * 32 + threadIdx.x;",
        f"int top = blockIdx.y * {chunk}, last = min(rows, top + {chunk});",
        _start(kind),
        "if (col < cols)",
        *(f"    {line}" for line in _walk(graph, "for (int row = top + threadIdx.y; row < last; row += 8)")),
        *_folded(kind, 8),
    ]


def _split_tile(graph: Graph, chunk: int) -> Kernel:
    lines = [*_strip(graph, chunk), f"parts[blockIdx.y * cols + col] = {_NAME[_reduction(graph)]};"]
    parameters = declared(graph, "rows", "cols").replace("float* out", "float* parts")
    source = [prologue(graph, _node(graph).args[0]), global_function(parameters, lines), _second(graph)]
    launch = _split_launch(graph, chunk, "((cols + 31) // 32, count)", "(32, 8)")
    note = (
        f"A block of 32 x 8 threads reduces 32 columns of a chunk of {chunk} rows in shared memory, and a second "
        f"kernel combines the chunks; {traffic(graph)}."
    )
    return made(graph, {"kind": "split_tile", "chunk": chunk}, source, launch, note)


def _atomic(graph: Graph, chunk: int) -> Kernel:
    """What is added to is the output itself, or double precision where operators follow that would show rounding."""
    node = _node(graph)
    plain = graph.outputs[0] is node and node.op == "column_sum"
    first = graph.inputs[0].name
    grid = f"((cols + 31) // 32, (rows + {chunk - 1}) // {chunk})"
    given, parameters = python_arguments(graph, "rows", "cols"), declared(graph, "rows", "cols")
    made_by = "kernel.run({}, (32, 8), {})"
    if plain:
        lines = [*_strip(graph, chunk), "atomicAdd(out + col, (float)s);"]
        source = [prologue(graph, node.args[0]), global_function(parameters, lines)]
        launch = [_sizes_line(graph), "out.zero_()", made_by.format(grid, given)]
        where = "the zeroed output by atomics"
    else:
        lines = [*_strip(graph, chunk), "atomicAdd(sums + col, s);"]
        finish = [
            "int col = blockIdx.x * blockDim.x + threadIdx.x;",
            "if (col >= cols) return;",
            *_finish(graph, "sums[col]"),
        ]
        source = [
            prologue(graph, node.args[0]),
            global_function(parameters.replace("float* out", "double* sums"), lines),
            global_function("const double* sums, float* out, int rows, int cols", finish, "finish"),
        ]
        launch = [
            _sizes_line(graph),
            f"sums = torch.zeros(cols, dtype=torch.float64, device={first}.device)",
            made_by.format(grid, given.replace("out, ", "sums, ")),
            "kernel.finish((cols + 63) // 64, 64, sums, out, rows, cols)",
        ]
        where = "zeroed sums in double precision by atomics; a second kernel finishes each column"
    note = (
        f"A block of 32 x 8 threads sums 32 columns of a chunk of {chunk} rows in shared memory and adds them to "
        f"{where}. {traffic(graph)}."
    )
    return made(graph, {"kind": "atomic", "chunk": chunk}, source, launch, note)
