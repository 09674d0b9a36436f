"""The CUDA kernels of procedural tasks: what they compute, on a CPU by emulation, and that nvcc takes them."""

from __future__ import annotations

import ast
import importlib.util
import random
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warpsmith
from tasks.loader import variant_source
from tasks.procedural.cuda_kernels import cuda_kernels
from tasks.procedural.draw import FAMILIES, draw_graph
from tasks.procedural.graph import Graph
from tasks.procedural.kernels import Kernel
from tasks.procedural.shapes import Shape, Shapes, draw_shapes
from tasks.procedural.torch_text import task_source

EPS = 2.0**-23
SIZES = {
    "elementwise": ((3, 4), (37, 129), (6, 1031)),
    "row_reduction": ((5, 64), (37, 33), (3, 1031)),
    "row_norm": ((5, 64), (37, 33), (3, 1031)),
    "column_reduction": ((5, 64), (300, 33), (1031, 130)),
    "scan": ((5, 64), (37, 33), (3, 1031)),
    "transpose": ((5, 64), (37, 33), (3, 1031), (130, 97)),
    "matmul": ((64, 64, 16), (37, 33, 35), (130, 71, 7)),
}
"""Small, odd and oblong; for emulation, where each thread costs a microsecond."""
GPU_SIZES = ((1 << 19, 32), (1 << 14, 768), (4096, 4096), (256, 16384))
"""Sizes that schedules are offered for."""


def sibling(name: str) -> ModuleType:
    """A module beside this file: pytest imports tests without putting their folders on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fibers = sibling("cuda_fibers")
suite = sibling("test_tasks_suite")


def offered(family: str, seed: int) -> Iterator[tuple[Graph, Kernel]]:
    """All schedules of one graph for one GPU size."""
    graph = draw_graph(seed, family=family)
    if family == "matmul":
        shape = draw_shapes(family, seed).gpu[0]
        sizes = shape.rows, shape.cols, shape.inner or 0
    else:
        sizes = (*GPU_SIZES[seed % len(GPU_SIZES)], 0)
    for kernel in cuda_kernels(graph, *sizes):
        yield graph, kernel


def kind(kernel: Kernel) -> str:
    """The schedule without its numbers, vectors apart."""
    choices = dict(kernel.schedule)
    return f"{choices['kind']} {choices.get('keep', '')} {'vector' in choices}"


def spread(family: str, seeds: Sequence[int], count: int) -> list[tuple[int, Graph, Kernel]]:
    """As many kernels, over all kinds of schedules that the family has."""
    found = [(seed, graph, kernel) for seed in seeds for graph, kernel in offered(family, seed)]
    random.Random(family).shuffle(found)
    seen: dict[str, int] = {}
    order = []
    for item in found:
        seen[kind(item[2])] = seen.get(kind(item[2]), 0) + 1
        order.append((seen[kind(item[2])], item))
    return [item for _, item in sorted(order, key=lambda pair: pair[0])[:count]]


def embedded(code: str) -> str:
    """The CUDA text of a candidate."""
    found = re.search(r'r"""\n(.*?)"""', code, re.S)
    assert found
    return found[1]


def mistakes(kernels: Sequence[tuple[int, Graph, Kernel]], distributions: Sequence[str]) -> list[str]:
    """Which kernels are wrong at which size: scaled error |c - t| / max(|t|, rms t) above max(4 x eager's, 64 eps)."""
    import torch

    fibers.prepare([f"\n{embedded(kernel.code)}" for _, _, kernel in kernels])
    found = []
    for seed, graph, kernel in kernels:
        for sizes in SIZES[graph.family]:
            try:
                with torch.no_grad():
                    found += check(seed, graph, kernel, sizes, distributions)
            except Exception as error:
                found.append(f"{graph.family} {seed} {kernel.schedule} {sizes}: {error!r}")
    return found


def check(
    seed: int, graph: Graph, kernel: Kernel, sizes: tuple[int, ...], distributions: Sequence[str]
) -> Iterator[str]:
    import torch

    shape = Shape(name="default", rows=sizes[0], cols=sizes[1], inner=sizes[2] if len(sizes) > 2 else None)
    source = task_source(graph, "t", Shapes(cpu=(shape,) * 3, gpu=(shape,) * 3), seed)
    space = suite.run(source)
    torch.manual_seed(seed)
    arguments = space["get_init_inputs"]()
    eager, exact = space["Model"](*arguments), suite.run(source)["Model"](*arguments).double()
    exact.load_state_dict(eager.state_dict())
    model = suite.run(kernel.code)["ModelNew"](*arguments)
    model.load_state_dict(eager.state_dict())
    for distribution in distributions:
        inputs = [suite.redrawn(x, distribution) for x in space["get_inputs"]()]
        truths = suite.outputs_of(exact(*[x.double() for x in inputs]))
        honests = suite.outputs_of(eager(*inputs))
        before = [x.clone() for x in inputs]
        results = suite.outputs_of(model(*inputs))
        where = f"{graph.family} {seed} {kernel.schedule} {sizes} {distribution}"
        if not all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True)):
            yield f"{where}: changes its inputs"
        for result, honest, truth in zip(results, honests, truths, strict=True):
            if (result.shape, result.dtype) != (honest.shape, honest.dtype):
                yield f"{where}: {tuple(result.shape)} in place of {tuple(honest.shape)}"
                continue
            scale = truth.abs().clamp(min=truth.square().mean().sqrt().item())
            allowed = max(4 * ((honest - truth).abs() / scale).max().item(), 64 * EPS)
            error = ((result - truth).abs() / scale).max().item()
            if not error <= allowed:
                yield f"{where}: error {error:.3g}, allowed {allowed:.3g}"


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """load_cuda on the CPU; new memory holds NaN."""
    import torch

    monkeypatch.setattr(warpsmith, "load_cuda", fibers.load_cuda, raising=False)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(deterministic)


@pytest.mark.slow
@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_compute_what_torch_does_at_sizes_they_were_not_made_for(family: str) -> None:
    assert mistakes(spread(family, range(8), 9), ("given", "shifted")) == []
