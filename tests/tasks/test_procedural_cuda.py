"""The CUDA kernels of procedural tasks: what they compute, on a CPU by emulation, and that nvcc takes them."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import warpsmith
from tasks.procedural import cuda_check
from tasks.procedural.cuda_kernels import cuda_kernels
from tasks.procedural.draw import FAMILIES, draw_graph
from tasks.procedural.generate import generated_task
from tasks.procedural.graph import Graph
from tasks.procedural.kernels import Kernel
from tasks.procedural.shapes import Shape, Shapes, draw_shapes
from tasks.procedural.torch_text import task_source

EPS = 2.0**-23
SIZES = {
    "elementwise": ((3, 4), (37, 129), (6, 1031)),
    "row_reduction": ((5, 64), (37, 33), (3, 1031)),
    "row_norm": ((5, 64), (37, 33), (3, 1031)),
    "column_reduction": ((5, 64), (300, 33), (4101, 10), (257, 260)),
    "scan": ((5, 64), (37, 33), (3, 1031)),
    "transpose": ((5, 64), (37, 33), (3, 1031), (130, 97)),
    "matmul": ((64, 64, 16), (37, 33, 35), (130, 71, 7)),
}
"""Small, odd and oblong; for emulation, where each thread costs a microsecond."""
GPU_SIZES = ((1 << 19, 32), (1 << 14, 768), (4096, 4096), (256, 16384))
"""Sizes that schedules are offered for."""


def module_of(path: Path) -> ModuleType:
    """A file's module: pytest imports tests without putting their folders on the path."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


HERE = Path(__file__).resolve()
fibers = module_of(HERE.with_name("cuda_fibers.py"))
suite = module_of(HERE.with_name("test_tasks_suite.py"))
benchmark = module_of(HERE.parents[2] / "benchmarks" / "generated_cuda.py")


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
            scale = truth.abs().clamp(min=max(truth.square().mean().sqrt().item(), 1e-300))  # all may be 0
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


@pytest.mark.usefixtures("emulated")
def test_the_check_sees_a_wrong_operator_and_a_missing_bound() -> None:
    """Else the test above would say nothing."""
    graph = draw_graph(1, family="row_norm")
    kernel = next(k for _, k in offered("row_norm", 1) if dict(k.schedule)["kind"] == "warp_per_row")
    wrong = kernel.code.replace("s_all += ", "s_all -= "), kernel.code.replace("col < cols", "col + 1 < cols")
    assert all(code != kernel.code for code in wrong)
    for code in wrong:
        assert mistakes([(1, graph, dataclasses.replace(kernel, code=code))], ("given",))


def compiled(kernels: Sequence[Kernel], folder: Path) -> str:
    """What ptxas says about them, all in one file: a namespace for each, and names of their own for the kernels."""
    text = []
    for number, kernel in enumerate(kernels):
        names = ("run", "combine", "finish")
        text += [f"#define {name} kernel{number}_{name}" for name in names]
        text += [f"namespace source{number} {{", embedded(kernel.code), "}", *(f"#undef {name}" for name in names)]
    (folder / "kernels.cu").write_text("\n".join(text), encoding="utf-8")
    done = subprocess.run(
        ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-Xptxas", "-v", "kernels.cu"],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[:2000]
    return done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("family", FAMILIES)
def test_nvcc_takes_the_kernels_without_spilling(family: str, tmp_path: Path) -> None:
    said = compiled([kernel for _, _, kernel in spread(family, range(8), 12)], tmp_path)
    assert said.count("bytes spill stores") == said.count(" 0 bytes spill stores") > 0, said


@pytest.mark.parametrize("family", FAMILIES)
def test_kernels_are_distinct_short_candidates_with_a_note(family: str) -> None:
    for seed in range(8):
        kernels = [kernel for _, kernel in offered(family, seed)]
        assert len(kernels) >= 8
        assert len({kernel.code for kernel in kernels}) == len({kernel.schedule for kernel in kernels}) == len(kernels)
        for kernel in kernels:
            tree = ast.parse(kernel.code)
            assert [node.name for node in tree.body if isinstance(node, ast.ClassDef)] == ["ModelNew"]
            assert "INFINITY" not in kernel.code
            assert 10 <= len(kernel.note.split()) <= 70
            assert len(kernel.code) <= 3400
        assert sum(len(kernel.code) <= 2100 for kernel in kernels) >= 0.4 * len(kernels)


@pytest.mark.usefixtures("emulated")
def test_the_gpu_benchmark_tells_right_from_wrong_and_sums_up() -> None:
    """Its parts that need no GPU, on small sizes."""
    task = generated_task(3, family="row_norm")
    shapes = [
        dataclasses.replace(shape, rows=9, cols=cols) for shape, cols in zip(task.shapes.gpu, (64, 32, 33), strict=True)
    ]
    small = Shapes(cpu=task.shapes.cpu, gpu=tuple(shapes))
    jobs = cuda_check.jobs_of(dataclasses.replace(task, shapes=small), 3)
    assert len({job.code for job in jobs}) == 3
    assert all("VARIANTS" in source for source, _ in jobs[0].sources)
    fibers.prepare([cuda_check.embedded(job.code) for job in jobs])
    cases, _ = cuda_check.cases_of(jobs[0], "cpu")
    assert [tuple(case.inputs[0].shape) for case in cases] == [(9, 64), (9, 32), *[(9, 33)] * 4]
    lines = [job.line(**cuda_check.looked_at(job, cases, 3, "cpu"), eager_microseconds=9.0) for job in jobs]
    assert all(line["correct"] and line["microseconds"] > 0 for line in lines)
    wrong = dataclasses.replace(jobs[0], code=jobs[0].code.replace("return out", "return out + 1"))
    found = cuda_check.looked_at(wrong, cases, 3, "cpu")
    assert not found["correct"]
    assert found["error"].startswith("default size, given inputs: error ")
    told = [{**line, "microseconds": spent} for line, spent in zip(lines, (2.0, 3.0, 8.0), strict=True)]
    table = benchmark.summary([*told, wrong.line(**found)])
    assert table[1].split() == ["row_norm", "3/4", "1", "1.50", "4.50"]
