"""Correct CUDA kernels of a graph, one for each schedule that makes sense for its size."""

from __future__ import annotations

from tasks.procedural.cuda_columns import column_kernels
from tasks.procedural.cuda_elementwise import elementwise_kernels
from tasks.procedural.cuda_matmul import matmul_kernels
from tasks.procedural.cuda_rows import row_kernels
from tasks.procedural.cuda_scan import scan_kernels
from tasks.procedural.cuda_transpose import transpose_kernels
from tasks.procedural.graph import Graph
from tasks.procedural.kernels import Kernel

_FAMILIES = {
    "elementwise": elementwise_kernels,
    "row_reduction": row_kernels,
    "row_norm": row_kernels,
    "column_reduction": column_kernels,
    "scan": scan_kernels,
    "transpose": transpose_kernels,
}


def cuda_kernels(graph: Graph, rows: int, cols: int, inner: int = 0) -> list[Kernel]:
    """All schedules for a graph, with distinct texts.

    Each kernel is right for every size of the graph's kind that shapes.py draws, and for all with fewer than 2**31
    elements and 16,384 columns; the size decides which schedules are offered and the constants in them.

    Args:
        inner: of a product; 0 for other families.
    """
    if graph.family == "matmul":
        found = matmul_kernels(graph, rows, cols, inner)
    else:
        found = _FAMILIES[graph.family](graph, rows, cols)
    return list({kernel.code: kernel for kernel in found}.values())
