"""The suite's CUDA experts: their form, that nvcc takes them, and what they compute, on a CPU by emulation."""

from __future__ import annotations

import ast
import importlib.util
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import warpsmith
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks, variant_source
from tasks.types import ExpertKernel, Task, Variant

TASKS = [task for task in suite_tasks() if "cuda" in task.backends]
EPS = 2.0**-23


def sibling(name: str) -> ModuleType:
    """A module beside this file: pytest imports tests without putting their folders on the path."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


fibers = sibling("cuda_fibers")
suite = sibling("test_tasks_suite")


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_gpu_shapes_have_the_names_and_roles_of_the_others(task: Task) -> None:
    assert [(v.name, v.held_out) for v in task.gpu_variants] == [(v.name, v.held_out) for v in task.variants]
    sizes = task.gpu_variants[-1].constants.values()
    assert any(size % 2 for size in sizes), "the held-out sizes are odd"
    assert all(v.constants.keys() == task.gpu_variants[0].constants.keys() for v in task.gpu_variants)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_cuda_experts_are_two_candidates_with_an_analysis(task: Task) -> None:
    kernels = expert_kernels(task.name, "cuda")
    assert {"good", "plain"} <= {kernel.quality for kernel in kernels}
    for kernel in kernels:
        tree = ast.parse(kernel.code)
        assert "ModelNew" in {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
        assert 20 <= len(kernel.analysis.split()) <= 80
        assert len(kernel.code) <= (1700 if kernel.quality == "plain" else 2600)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize("level", [1, 2, 3])
def test_nvcc_compiles_the_experts_without_spilling(
    level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sources: list[tuple[str, str]] = []
    for task in (task for task in TASKS if task.level == level):
        for kernel in expert_kernels(task.name, "cuda"):
            name = f"{task.name}_{kernel.quality}"
            monkeypatch.setattr(
                warpsmith, "load_cuda", lambda source, options=(), name=name: sources.append((name, source))
            )
            suite.run(kernel.code)
    assert sources
    (tmp_path / "kernels.cu").write_text(one_source(sources), encoding="utf-8")
    # Of what load_cuda's prelude defines, nvcc itself lacks float.h only.
    command = ["nvcc", "-cubin", "-arch=sm_90", "-std=c++17", "-include", "float.h", "-Xptxas", "-v", "kernels.cu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr[:2000]
    assert done.stderr.count("bytes spill stores") >= len(sources)
    assert done.stderr.count("bytes spill stores") == done.stderr.count(" 0 bytes spill stores"), done.stderr


def one_source(sources: list[tuple[str, str]]) -> str:
    """All of them in one text, each in a namespace: most of nvcc's time is CUDA's headers, once for each file."""
    includes: set[str] = set()
    parts = []
    for number, (name, source) in enumerate(sources):
        includes |= set(re.findall(r"^[ \t]*#include.*$", source, re.MULTILINE))
        # A line stays a line, so that an error names the kernel and its own line.
        text = re.sub(r"^[ \t]*#include.*$", "", source, flags=re.MULTILINE).replace('extern "C"', "")
        undone = "".join(f"#undef {macro}\n" for macro in re.findall(r"^[ \t]*#define[ \t]+(\w+)", text, re.MULTILINE))
        parts.append(f'namespace kernel{number} {{\n#line 1 "{name}"\n{text}\n{undone}}}\n')
    return "\n".join([*sorted(includes), *parts])


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_cuda_experts_are_as_exact_as_eager_by_emulation(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule of the C++ experts, on every shape; all distributions on the held-out one. New memory holds NaN."""
    import torch

    monkeypatch.setattr(warpsmith, "load_cuda", fibers.load_cuda, raising=False)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    candidates = [(kernel, suite.run(kernel.code)["ModelNew"]) for kernel in expert_kernels(task.name, "cuda")]
    deterministic = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True)
    try:
        for variant, distributions in zip(task.variants, [("given",), ("given",), task.distributions], strict=True):
            check_variant(task, variant, distributions, candidates)
    finally:
        torch.use_deterministic_algorithms(deterministic)


def check_variant(
    task: Task, variant: Variant, distributions: tuple[str, ...], candidates: list[tuple[ExpertKernel, Any]]
) -> None:
    import torch

    # Rows are alike, and emulation is slow: a few of them are enough.
    sizes = {name: min(size, 64) if name == "ROWS" else size for name, size in variant.constants.items()}
    if variant.name == "default" and "\nROWS = " in task.source:
        sizes = {"ROWS": 8}
    source = variant_source(task.source, sizes)
    space = suite.run(source)
    torch.manual_seed(1)
    arguments = space["get_init_inputs"]()
    eager, exact = space["Model"](*arguments), suite.run(source)["Model"](*arguments).double()
    exact.load_state_dict(eager.state_dict())
    models = [(kernel.quality, candidate(*arguments)) for kernel, candidate in candidates]
    for _, model in models:
        model.load_state_dict(eager.state_dict())
    with torch.no_grad():
        for distribution in distributions:
            inputs = [suite.redrawn(x, distribution) for x in space["get_inputs"]()]
            truths = suite.outputs_of(exact(*[x.double() if x.is_floating_point() else x for x in inputs]))
            honests = suite.outputs_of(eager(*inputs))
            for quality, model in models:
                before = [x.clone() for x in inputs]
                outputs = suite.outputs_of(model(*inputs))
                assert all(torch.equal(x, y) for x, y in zip(inputs, before, strict=True))
                for number, (output, honest, truth) in enumerate(zip(outputs, honests, truths, strict=True)):
                    where = (quality, variant.name, distribution, f"output {number}")
                    assert (output.shape, output.dtype) == (honest.shape, honest.dtype), where
                    if not output.is_floating_point():
                        assert bool(((output == truth) | (output == honest)).all()), where
                        continue
                    scale = truth.abs().clamp(min=truth.square().mean().sqrt().item())
                    allowed = max(4 * ((honest - truth).abs() / scale).max().item(), 64 * EPS)
                    assert ((output - truth).abs() / scale).max().item() <= allowed, where


def test_emulated_threads_share_memory_and_shuffle() -> None:
    """Sums of blocks of 96 numbers by shuffles, shared memory and a barrier, against torch."""
    import torch

    kernels = fibers.load_cuda(r"""
    extern "C" __global__ void sums(const float* x, float* y) {
        extern __shared__ float part[];
        float v = x[blockIdx.x * 96 + threadIdx.x];
        for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k);
        if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
        __syncthreads();
        if (threadIdx.x == 0) y[blockIdx.x] = part[0] + part[1] + part[2];
    }""")
    x, y = torch.arange(480.0), torch.empty(5)
    kernels.sums(5, 96, x, y, shared=12)
    assert torch.equal(y, x.view(5, 96).sum(dim=1))


def test_emulation_notices_a_barrier_that_some_threads_miss() -> None:
    import torch

    kernels = fibers.load_cuda(r"""
    extern "C" __global__ void half(float* y) {
        if (threadIdx.x < 16) __syncthreads();
        y[threadIdx.x] = 1;
    }""")
    with pytest.raises(AssertionError, match="half: threads wait for ever"):
        kernels.half(1, 32, torch.empty(32))
