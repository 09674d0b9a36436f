"""What a prompt says of the language that candidates are written in, and how code is told to be of one.

The wording is short: the smallest policy reads 2k tokens, of which the exemplars shall have most.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from archive.types import Record
from search.errors import SearchError
from tasks.types import Task


@dataclass(frozen=True, kw_only=True)
class Backend:
    """The parts of a prompt that differ from language to language."""

    name: str
    """As in Task.backends."""
    language: str
    """For the sentence that states the task."""
    call: str
    """How a kernel is called; for the requirements."""
    template: str
    """A whole candidate file. Left out where a correct exemplar shows the form."""


CPP = Backend(
    name="cpp",
    language="C++ (g++ -O3, OpenMP)",
    call="The kernel takes pointers to contiguous tensors, and numbers.",
    template="""\
import torch, warpsmith
kernel = warpsmith.load_cpp(r'''
extern "C" void f(const float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }''')
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.f(x, y, x.numel())
        return y""",
)

CUDA = Backend(
    name="cuda",
    language="CUDA C++",
    call=(
        "Kernels are called as kernels.name(grid, block, arguments..., shared=bytes); arguments are contiguous "
        "tensors for pointers, and numbers. No headers."
    ),
    template="""\
import torch, warpsmith
kernels = warpsmith.load_cuda(r'''
extern "C" __global__ void f(const float* x, float* y, long long n) {
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}''')
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.f((x.numel() + 255) // 256, 256, x, y, x.numel())
        return y""",
)

BACKENDS = {backend.name: backend for backend in (CPP, CUDA)}
"""Those that prompts can ask for."""

DEVICES = {"cpp": "cpu", "cuda": "cuda"}
"""Where the candidates of a backend run, and so where they are judged."""

_LOADERS = {"load_cpp": "cpp", "load_cuda": "cuda"}
_MARKS = re.compile(r"\b(load_cpp|load_cuda)\b|(@triton\.jit)")


def backend_for(task: Task, name: str) -> Backend:
    """The backend of a prompt for this task. Raises SearchError for a task that does not admit it."""
    if name not in task.backends:
        raise SearchError(
            f"{task.where}: candidates may use {', '.join(task.backends)} only, prompts ask for "
            f'{BACKENDS[name].language}; add "{name}" to its BACKENDS, or set search.backend'
        )
    return BACKENDS[name]


def backend_of(code: str) -> str:
    """The language that a candidate's kernels are written in, by how it loads them; "" when none is loaded."""
    found = _MARKS.search(code)
    if found is None:
        return ""
    return _LOADERS.get(found[1], "triton")


def of_backend(records: Iterable[Record], name: str) -> list[Record]:
    """The records that a prompt for this backend may show: its own, and those without any kernel."""
    return [record for record in records if (backend_of(record.code) or record.extra.get("backend", "")) in (name, "")]


def gpu_name() -> str:
    """This machine's first GPU as its driver calls it; "" without one. Asks no CUDA library: none may be started."""
    for file in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        try:
            found = re.search(r"^Model:[ \t]*(.+)$", file.read_text(), re.MULTILINE)
        except OSError:
            continue
        if found:
            return found[1].strip()
    return ""
