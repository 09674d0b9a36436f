"""What limits a generated task, in numbers: bytes, operations, and which of the two is the bound."""

from __future__ import annotations

from tasks.procedural.graph import COL, FULL, LEFT, RIGHT, ROW, TURNED, Graph, Node, nodes
from tasks.procedural.kernels import Kernel
from tasks.procedural.operators import COLUMN_REDUCTIONS, ROW_NORMS, ROW_REDUCTIONS
from tasks.procedural.shapes import Shape

BALANCE = {"cpp": 3.0, "cuda": 14.0}
"""Operations in the time of one byte. A core with 16-wide multiply-adds at 3 GHz (about 100 GFLOP/s) on data in its
caches (30 GB/s); an H200 (67 TFLOP/s in float32, 4.8 TB/s)."""
_COSTS = {
    **dict.fromkeys(("relu", "abs", "square", "neg", "scale", "shift", "add", "sub", "mul", "maximum", "minimum"), 1),
    **dict.fromkeys(("leaky_relu", "clamp", "relu6"), 2),
    **dict.fromkeys(("bell", "softsign", "hardsigmoid"), 4),
    **dict.fromkeys(("hardswish", "sqrt_abs"), 5),
    **dict.fromkeys(("row_sum", "row_mean", "row_max", "row_min", "column_sum", "column_mean", "column_max"), 1),
    **dict.fromkeys(("column_min", "cumsum"), 1),
    **dict.fromkeys(("row_norm", "row_mean_square", "center"), 2),
    **dict.fromkeys(("l2_normalize", "rms_norm"), 4),
    **dict.fromkeys(("layer_norm",), 7),
    **dict.fromkeys(("softmax", "log_softmax", "row_logsumexp"), 14),
    **dict.fromkeys(("gelu_tanh", "mish"), 25),
    "transpose": 0,
}
_FUNCTION_COST = 12
"""Of exp, log, sin, tanh, erf and what is made of one of them."""


def element_count(node: Node, shape: Shape) -> int:
    """How many numbers a node holds."""
    rows, cols, inner = shape.rows, shape.cols, shape.inner or 1
    sizes = {FULL: rows * cols, TURNED: rows * cols, ROW: rows, COL: cols, LEFT: rows * inner, RIGHT: inner * cols}
    return sizes[node.shape]


def bytes_read(graph: Graph, shape: Shape) -> int:
    """Each input once, float32."""
    return 4 * sum(element_count(node, shape) for node in graph.inputs)


def bytes_written(graph: Graph, shape: Shape) -> int:
    """Each output once."""
    return 4 * sum(element_count(node, shape) for node in graph.outputs)


def eager_bytes(graph: Graph, shape: Shape) -> int:
    """What PyTorch moves when each operator reads its arguments and writes its result."""
    steps = [node for node in nodes(graph.outputs) if node.op != "input"]
    return 4 * sum(element_count(node, shape) + sum(element_count(a, shape) for a in node.args) for node in steps)


def operations(graph: Graph, shape: Shape) -> int:
    """Additions, multiplications and the like; a function such as exp counts as 12."""
    total = 0
    for node in nodes(graph.outputs):
        if node.op == "input":
            continue
        if node.op == "matmul":
            total += 2 * element_count(node, shape) * (shape.inner or 1)
        else:
            wide = node.op in ROW_REDUCTIONS or node.op in ROW_NORMS or node.op in COLUMN_REDUCTIONS
            total += _COSTS.get(node.op, _FUNCTION_COST) * element_count(node.args[0] if wide else node, shape)
    return total


def bound(graph: Graph, shape: Shape, backend: str) -> str:
    """ "memory" or "arithmetic"."""
    moved = bytes_read(graph, shape) + bytes_written(graph, shape)
    return "arithmetic" if operations(graph, shape) > BALANCE[backend] * moved else "memory"


def analysis(graph: Graph, shape: Shape, backend: str) -> str:
    """The performance analysis of an answer: true numbers of the timed size, in one line."""
    read, written, work = bytes_read(graph, shape), bytes_written(graph, shape), operations(graph, shape)
    steps = sum(node.op != "input" for node in nodes(graph.outputs))
    limit = bound(graph, shape, backend)
    text = f"Reads {_amount(read)}B, writes {_amount(written)}B, {_amount(work)}FLOP: "
    text += f"{work / (read + written):.2g} FLOP a byte, bound by {limit}."
    if steps > 1:
        text += f" PyTorch runs {steps} operators one by one and moves {_amount(eager_bytes(graph, shape))}B; "
        text += "one kernel needs no intermediate results."
    return text


def design(kernel: Kernel) -> str:
    """The algorithm design of an answer: what the kernel's schedule does."""
    note = kernel.note.strip().rstrip(".")
    return f"{note[:1].upper()}{note[1:]}."


def _amount(number: float) -> str:
    """ "1.3 M" of 1,310,720."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= size:
            return f"{number / size:.3g} {letter}"
    return f"{number:.3g} "
