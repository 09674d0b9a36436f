"""CUDA kernels of row reductions and row norms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tasks.procedural.c_text import row_numbers, statements
from tasks.procedural.cuda_text import (
    PACK,
    START,
    block,
    block_helper,
    called,
    declared,
    global_function,
    lane_helper,
    leaves,
    made,
    outputs,
    passed,
    prologue,
    python_arguments,
    traffic,
    variables,
)
from tasks.procedural.graph import FULL, ROW, Graph, Node
from tasks.procedural.kernels import HOISTED, Kernel, accumulate, reads_cut
from tasks.procedural.lower import RowPlan, plan_rows


@dataclass(frozen=True, kw_only=True)
class Way:
    """How the threads share the rows."""

    lanes: int
    """Threads of one row: 1, a power of two up to 32, or 0 for the whole block."""
    block: int
    """Threads of a block; 0 where the launch fits it to the columns."""
    keep: str = "again"
    """Where values wait for the next pass: "again" reads and computes them anew, "shared", "registers"."""
    vector: int = 1
    """4: loads of 16 bytes where the columns are a multiple of four."""

    @property
    def schedule(self) -> dict[str, int | str]:
        """The choices by name."""
        kind = {0: "block", 1: "thread", 32: "warp"}.get(self.lanes, "lanes")
        found: dict[str, int | str] = {"kind": f"{kind}_per_row", "block": self.block, "keep": self.keep}
        if kind == "lanes":
            found["lanes"] = self.lanes
        return found | ({"vector": self.vector} if self.vector > 1 else {})


KEPT = 16
"""Values a thread holds in registers: with 1,024 threads enough for 16,384 columns, more than any task has."""


def row_kernels(graph: Graph, rows: int, cols: int) -> list[Kernel]:
    """From a thread to a block per row, values read again or kept between the passes."""
    plan = plan_rows(graph)
    ways = [Way(lanes=1, block=size) for size in (64, 256) if cols <= 2048 and rows >= 256]
    ways += [Way(lanes=lanes, block=256) for lanes in (4, 8, 16) if 4 <= cols // lanes <= 64]
    ways += [Way(lanes=32, block=size) for size in (64, 128, 256, 512)]
    ways += [Way(lanes=32, block=size, vector=4) for size in (128, 256) if cols >= 64]
    sizes = [size for size in (64, 128, 256, 512, 1024) if cols // 64 <= size <= max(64, cols)]
    ways += [Way(lanes=0, block=size) for size in sizes]
    ways += [Way(lanes=0, block=size, vector=4) for size in sizes if size * 4 <= max(256, cols)]
    if _passes_that_read(plan, graph) > 1:
        ways += [replace(way, keep="shared") for way in ways if way.lanes == 0 and way.block in (128, 256, 512)]
        ways += [Way(lanes=0, block=0, keep="registers", vector=vector) for vector in (1, 4)]
    return [_kernel(graph, plan, way) for way in ways]


@dataclass(frozen=True, kw_only=True)
class _Pass:
    """One way along a row."""

    before: tuple[str, ...] = ()
    """Numbers of the row."""
    body: tuple[str, ...] = ()
    """For one element, whose value is in ``v``."""
    totals: tuple[tuple[str, str, str], ...] = ()
    """(reduction, accumulator, value to take in)."""
    stores: tuple[tuple[str, str], ...] = ()
    """(output, value for one element)."""
    row_stores: tuple[tuple[str, str], ...] = ()
    """(output, value for the row)."""

    @property
    def lines(self) -> list[str]:
        """Body and accumulation."""
        return [*self.body, *(accumulate(reduction, name, value) for reduction, name, value in self.totals)]

    @property
    def reads(self) -> list[str]:
        """All that is done for one element, for a look at what it needs."""
        return [*self.lines, *(value for _, value in self.stores)]


def _passes(graph: Graph, plan: RowPlan, inputs: Mapping[Node, str]) -> list[_Pass]:
    """The passes, the last of which writes the outputs; ``inputs``: how inputs are read."""
    known: dict[Node, str] = {**inputs, plan.cut: "v"}
    names, hoists, counts = variables(graph), list(HOISTED), {"sum": 0, "max": 0, "min": 0}
    found = []

    def hoist(targets: Sequence[Node]) -> tuple[str, ...]:
        numbers = row_numbers(targets, known)
        made = statements(numbers, known, names=hoists)
        known.update(zip(numbers, made.results, strict=True))
        del hoists[: sum(line.startswith("float ") for line in made.lines)]
        return made.lines

    for reductions in plan.passes:
        values = [node.args[0] for node in reductions]
        before = hoist(values)
        body = statements(values, known, names=names)
        totals = []
        for node, value in zip(reductions, body.results, strict=True):
            counts[node.op] += 1
            number = "" if counts[node.op] == 1 else str(counts[node.op])
            name = {"sum": "s", "max": "m", "min": "low"}[node.op] + number
            totals.append((node.op, name, value))
            known[node] = name
        found.append(_Pass(before=before, body=body.lines, totals=tuple(totals)))
    before = hoist(plan.outputs)
    targets = list(zip((name for name, _ in outputs(graph)), plan.outputs, strict=True))
    full = [(name, node) for name, node in targets if node.shape == FULL]
    body = statements([node for _, node in full], known, names=names)
    stores = tuple((name, value) for (name, _), value in zip(full, body.results, strict=True))
    row_stores = tuple((name, known[node]) for name, node in targets if node.shape == ROW)
    found.append(_Pass(before=before, body=body.lines, stores=stores, row_stores=row_stores))
    return found


def _passes_that_read(plan: RowPlan, graph: Graph) -> int:
    return sum(reads_cut(plan, one.reads) for one in _passes(graph, plan, leaves(graph, "i", "row", "col")))


def _kernel(graph: Graph, plan: RowPlan, way: Way) -> Kernel:
    wide = {node: f"{node.name}4.v[j]" for node in graph.inputs if node.shape == FULL}
    texts = leaves(graph, "i", "row", "col + j" if way.vector > 1 else "col")
    if way.vector > 1:
        texts |= wide
    passes = _passes(graph, plan, texts)
    lines = [*_place(way, graph)]
    for number, one in enumerate(passes):
        lines += [*one.before, *_accumulators(way, one)]
        if one.reads:
            lines += _loop(graph, plan, way, one, first=number == 0, texts=texts)
        lines += _combined(way, one)
        stores = [f"{name}[row] = {value};" for name, value in one.row_stores]
        if stores and way.lanes == 1:
            lines += stores
        elif stores:
            lines += [f"if ({'lane' if way.lanes else 'threadIdx.x'} == 0) {store}" for store in stores]
    kinds = sorted({reduction for one in passes for reduction, _, _ in one.totals})
    source: list[list[str]] = [[PACK]] if way.vector > 1 else []
    if way.lanes == 0:
        source += [block_helper(kind) for kind in kinds]
    elif way.lanes > 1:
        source += [lane_helper(kind, way.lanes) for kind in kinds]
    source.append(prologue(graph, plan.cut))
    source += _global(graph, way, lines)
    return made(graph, way.schedule, source, _launch(graph, way), _note(graph, way, len(passes)))


def _global(graph: Graph, way: Way, lines: list[str]) -> list[list[str]]:
    """The kernel; with 16-byte loads as a template for packs of four and of one."""
    if way.vector == 1:
        return [global_function(declared(graph, "rows", "cols"), lines)]
    work = block(f"template <int W> __device__ void work({declared(graph, 'rows', 'cols')})", lines)
    given = passed(graph, "rows", "cols")
    choice = [f"if (cols % 4 == 0) work<4>({given});", f"else work<1>({given});"]
    return [work, global_function(declared(graph, "rows", "cols"), choice)]


def _place(way: Way, graph: Graph) -> list[str]:
    """Which row a thread works on."""
    if way.lanes == 0:
        lines = ["int row = blockIdx.x;"]
    elif way.lanes == 1:
        lines = ["int row = blockIdx.x * blockDim.x + threadIdx.x;", "if (row >= rows) return;"]
    else:
        lanes, together = way.lanes, way.block // way.lanes
        at = f"int row = blockIdx.x * {together} + threadIdx.x / {lanes}, lane = threadIdx.x % {lanes};"
        # Lanes of one warp may belong to different rows, and all of a warp take part in a shuffle.
        lines = [at, "if (row >= rows) return;" if lanes == 32 else "if (row >= rows) row = rows - 1;"]
    if way.keep == "shared":
        lines.append("extern __shared__ float kept[];")
    elif way.keep == "registers":
        lines.append(f"Pack<W> kept[{KEPT} / W];" if way.vector > 1 else f"float kept[{KEPT}];")
    return lines


def _accumulators(way: Way, one: _Pass) -> list[str]:
    """Where few threads share a row, one adds thousands of numbers, and does so in double precision."""
    return [
        f"double {name}_all = 0.;" if way.lanes and reduction == "sum" else f"float {name} = {START[reduction]};"
        for reduction, name, _ in one.totals
    ]


def _combined(way: Way, one: _Pass) -> list[str]:
    lines = []
    for reduction, name, _ in one.totals:
        source = f"{name}_all" if way.lanes and reduction == "sum" else name
        who = {0: "block", 1: "", 32: "warp"}.get(way.lanes, "group")
        value = f"{who}_{reduction}({source})" if who else source
        if value != name:
            lines.append(f"{name} = {value};" if source == name else f"float {name} = {value};")
    return lines


def _loop(graph: Graph, plan: RowPlan, way: Way, one: _Pass, *, first: bool, texts: Mapping[Node, str]) -> list[str]:
    """The way along the row."""
    needs_v = reads_cut(plan, one.reads)
    kept = way.keep != "again" and not first
    fresh = needs_v and not kept
    value = called(plan.cut, texts)
    body = one.lines
    if way.lanes:
        body = [
            *one.body,
            *(
                f"{name}_all += {given};" if reduction == "sum" else accumulate(reduction, name, given)
                for reduction, name, given in one.totals
            ),
        ]
    if way.vector > 1:
        return _pack_loop(graph, way, one, body, value, fresh=fresh, kept=kept and needs_v)
    place = "kept[j]" if way.keep == "registers" else "kept[col]"
    inner = []
    if fresh:
        inner.append(f"float v = {value};")
        if way.keep != "again":
            inner.append(f"{place} = v;")
    elif kept and needs_v:
        inner.append(f"float v = {place};")
    inner += [*body, *(f"{name}[i] = {given};" for name, given in one.stores)]
    if any("[i]" in line for line in inner):
        inner.insert(0, "int i = row * cols + col;")
    if way.keep == "registers":
        inner = ["int col = threadIdx.x + j * blockDim.x;", "if (col >= cols) break;", *inner]
        return ["#pragma unroll", *block(f"for (int j = 0; j < {KEPT}; j++)", inner)]
    start, step = _stride(way)
    return block(f"for (int col = {start}; col < cols; col += {step})", inner)


def _stride(way: Way) -> tuple[str, str]:
    if way.lanes == 1:
        return "0", "1"
    return ("lane", str(way.lanes)) if way.lanes else ("threadIdx.x", "blockDim.x")


def _pack_loop(
    graph: Graph, way: Way, one: _Pass, body: list[str], value: str, *, fresh: bool, kept: bool
) -> list[str]:
    """The same with packs of W columns."""
    wide = [node.name for node in graph.inputs if node.shape == FULL]
    each = [f"float v = {value};"] if fresh else []
    place = "kept[t].v[j]" if way.keep == "registers" else "kept[col + j]"
    if fresh and way.keep != "again":
        each.append(f"{place} = v;")
    elif kept:
        each.append(f"float v = {place};")
    each += [*body, *(f"{name}4.v[j] = {given};" for name, given in one.stores)]
    read = [name for name in wide if any(f"{name}4.v[j]" in line for line in each)]
    loads = [f"Pack<W> {name}4 = *(const Pack<W>*)({name} + i);" for name in read]
    loads += [f"Pack<W> {name}4;" for name, _ in one.stores]
    stores = [f"*(Pack<W>*)({name} + i) = {name}4;" for name, _ in one.stores]
    at = ["int i = row * cols + col;"] if loads else []
    inner = [*at, *loads, *block("for (int j = 0; j < W; j++)", each), *stores]
    if way.keep == "registers":
        inner = ["int col = (threadIdx.x + t * blockDim.x) * W;", "if (col >= cols) break;", *inner]
        return ["#pragma unroll", *block(f"for (int t = 0; t < {KEPT} / W; t++)", inner)]
    start, step = _stride(way)
    return block(f"for (int col = {start} * W; col < cols; col += {step} * W)", inner)


def _launch(graph: Graph, way: Way) -> list[str]:
    first = graph.inputs[0].name
    lines = [f"rows, cols = {first}.shape"]
    given = python_arguments(graph, "rows", "cols")
    if way.keep == "registers":
        size = f"max(32, (cols + {32 * KEPT - 1}) // {32 * KEPT} * 32)"
        return [*lines, f"kernel.run(rows, {size}, {given})"]
    if way.lanes == 0:
        return [*lines, f"kernel.run(rows, {way.block}, {given}{', shared=4 * cols' if way.keep == 'shared' else ''})"]
    together = way.block // way.lanes
    return [*lines, f"kernel.run((rows + {together - 1}) // {together}, {way.block}, {given})"]


def _note(graph: Graph, way: Way, passes: int) -> str:
    size = f"{way.block} threads" if way.block else f"as many threads as {KEPT} values each need"
    who = {
        0: f"A block of {size} computes a row; warp shuffles and shared memory combine its sums",
        1: f"One thread computes a whole row, {way.block} rows a block, so a warp's accesses lie a row apart",
        32: f"A warp computes a row, {way.block // 32} rows a block; shuffles combine its sums",
    }.get(
        way.lanes,
        f"{way.lanes} lanes of a warp compute a row, {way.block // max(1, way.lanes)} rows a block; shuffles combine",
    )
    packs = ", with 16-byte accesses where the columns are a multiple of four" if way.vector > 1 else ""
    if way.keep == "again":
        several = passes if graph.outputs[-1].shape == FULL else passes - 1
        rest = f"each of {several} passes reads the row again" if several > 1 else "one pass reads the row"
        return f"{who}{packs}. In all, {rest}; {traffic(graph, max(1, several))}."
    where = "shared memory" if way.keep == "shared" else "registers"
    return f"{who}{packs}. The row's values stay in {where} between the passes, so {traffic(graph)}."
