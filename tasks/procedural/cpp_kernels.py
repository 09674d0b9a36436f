"""Correct C++ kernels for an operator graph, under every schedule that makes sense for a size."""

from __future__ import annotations

from tasks.procedural.cpp_columns import column_kernels
from tasks.procedural.cpp_elementwise import elementwise_kernels
from tasks.procedural.cpp_matmul import matmul_kernels
from tasks.procedural.cpp_moves import scan_kernels, transpose_kernels
from tasks.procedural.cpp_rows import row_kernels
from tasks.procedural.graph import Graph
from tasks.procedural.kernels import Kernel


def cpp_kernels(graph: Graph, rows: int, cols: int, inner: int = 0) -> list[Kernel]:
    """The kernels; each is right for any size, the size decides which are offered.

    Args:
        rows: of the grid that is timed.
        cols: of it.
        inner: of a product; unused otherwise.
    """
    if graph.family == "elementwise":
        return elementwise_kernels(graph)
    if graph.family in ("row_reduction", "row_norm"):
        return row_kernels(graph, cols)
    if graph.family == "column_reduction":
        return column_kernels(graph, cols)
    if graph.family == "scan":
        return scan_kernels(graph, rows)
    if graph.family == "transpose":
        return transpose_kernels(graph, rows, cols)
    return matmul_kernels(graph, cols)
