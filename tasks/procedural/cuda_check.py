"""Whether a candidate for a generated task is right on a GPU, and how long it takes: the parts of
benchmarks/generated_cuda.py that work on one kernel. For our own kernels, in this process: no jail.
"""

from __future__ import annotations

import hashlib
import random
import re
import statistics
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tasks.distributions import redrawn
from tasks.loader import variant_source
from tasks.procedural.cuda_kernels import cuda_kernels
from tasks.procedural.generate import GeneratedTask
from tasks.procedural.graph import Graph
from tasks.procedural.shapes import Shape

EPS = 2.0**-23
ERROR_FACTOR, FLOOR, MAX_L2 = 4.0, 64 * EPS, 0.5
"""The judge's budget (judge/verify.py, judge/settings.py)."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One kernel of one task."""

    seed: int
    family: str
    composition: str
    schedule: tuple[tuple[str, int | str], ...]
    code: str
    sources: tuple[tuple[str, tuple[str, ...]], ...]
    """The task's text for each variant, the timed one first, with the distributions of its inputs."""
    sizes: tuple[int, int, int]

    def line(self, **found: Any) -> dict[str, Any]:
        """What goes to the file."""
        return {
            "seed": self.seed,
            "family": self.family,
            "composition": self.composition,
            "schedule": dict(self.schedule),
            "code": code_key(self.code),
            "sizes": self.sizes,
            **found,
        }


def code_key(code: str) -> str:
    """Names a candidate by its text."""
    return hashlib.sha256(code.encode()).hexdigest()[:16]


def jobs_of(task: GeneratedTask, per_task: int) -> list[Job]:
    """The kernels of a task: ``per_task`` of its schedules (all when 0), drawn at random."""
    seed, graph, shapes, text = task.seed, task.graph, task.shapes, task.source
    first = shapes.gpu[0]
    sizes = (first.rows, first.cols, first.inner or 0)
    kernels = cuda_kernels(graph, *sizes)
    if 0 < per_task < len(kernels):
        kernels = random.Random(f"schedules {seed}").sample(kernels, per_task)
    wanted = [("given",), ("shifted",), ("given", "shifted", "large", "ties")]
    sources = [(at_size(text, graph, shape), given) for shape, given in zip(shapes.gpu, wanted, strict=True)]
    return [
        Job(
            seed=seed,
            family=graph.family,
            composition=graph.composition,
            schedule=kernel.schedule,
            code=kernel.code,
            sources=tuple(sources),
            sizes=sizes,
        )
        for kernel in kernels
    ]


def at_size(text: str, graph: Graph, shape: Shape) -> str:
    """The task's text with another size in place of its own."""
    names = re.findall(r"^(\w+) = \d+$", text, re.M)
    found = [name for name in names if name != "LEVEL"]
    values = (shape.rows, shape.cols, shape.inner) if graph.family == "matmul" else (shape.rows, shape.cols)
    return variant_source(text, dict(zip(found, values, strict=True)))


def embedded(code: str) -> str:
    """The CUDA text of a candidate, as load_cuda gets it."""
    return code.split('r"""', 1)[1].split('"""', 1)[0]


def run(source: str) -> dict[str, Any]:
    """A module's names."""
    module = types.ModuleType("source")
    exec(compile(source, "source", "exec"), module.__dict__)
    return module.__dict__


def outputs_of(result: Any) -> list[Any]:
    """The tensors of a forward's result."""
    return list(result) if isinstance(result, tuple | list) else [result]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one output may be off by: the rule of judge/verify.py."""

    truth: Any
    """float64, on the device."""
    scale: Any
    """Of each element's error."""
    rms: Any
    allowed: float
    allowed_l2: float

    def mistake(self, result: Any) -> str:
        """What is wrong; nothing when the result is right."""
        import torch

        if result.shape != self.truth.shape or result.dtype != torch.float32:
            return f"{tuple(result.shape)} {result.dtype} in place of {tuple(self.truth.shape)}"
        off = (result - self.truth).abs_()
        l2, error = torch.stack([off.square().mean().sqrt() / self.rms, (off / self.scale).max()]).tolist()
        if not error <= self.allowed:
            return f"error {error:.3g}, allowed {self.allowed:.3g}"
        return "" if l2 <= self.allowed_l2 else f"L2 error {l2:.3g}, allowed {self.allowed_l2:.3g}"


def budget_of(honest: Any, truth: Any) -> Budget:
    """From an eager float32 run and one in float64."""
    rms = truth.square().mean().sqrt().clamp(min=1e-300)
    scale = truth.abs().clamp(min=rms)
    off = (honest - truth).abs()
    return Budget(
        truth=truth,
        scale=scale,
        rms=rms,
        allowed=max(ERROR_FACTOR * (off / scale).max().item(), FLOOR),
        allowed_l2=min(max(ERROR_FACTOR * (off.square().mean().sqrt() / rms).item(), FLOOR), MAX_L2),
    )


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call whose result is known."""

    name: str
    arguments: list[Any]
    state: dict[str, Any]
    inputs: list[Any]
    budgets: list[Budget]
    """Of each output."""


def cases_of(job: Job, device: str) -> tuple[list[Case], Any]:
    """All calls to compare, and the eager model of the first."""
    import torch

    found, first = [], None
    for number, (source, distributions) in enumerate(job.sources):
        space, wide = run(source), run(source)
        torch.manual_seed(job.seed)
        with torch.device(device):
            arguments = space["get_init_inputs"]()
            eager, exact = space["Model"](*arguments), wide["Model"](*arguments).double()
            given = space["get_inputs"]()
        exact.load_state_dict(eager.state_dict())
        first = first or eager
        for distribution in distributions:
            inputs = [redrawn(x, distribution).contiguous() for x in given]
            honests, truths = outputs_of(eager(*inputs)), outputs_of(exact(*[x.double() for x in inputs]))
            found.append(
                Case(
                    name=f"{('default', 'second', 'held-out')[number]} size, {distribution} inputs",
                    arguments=arguments,
                    state=eager.state_dict(),
                    inputs=inputs,
                    budgets=[budget_of(h, t) for h, t in zip(honests, truths, strict=True)],
                )
            )
    return found, first


def model_of(namespace: dict[str, Any], case: Case, device: str) -> Any:
    """The candidate with the task's parameters."""
    import torch

    with torch.device(device):
        model = namespace["ModelNew"](*case.arguments)
    model.load_state_dict(case.state)
    return model


def mistake(results: Sequence[Any], case: Case) -> str:
    """What is wrong with a call's results; nothing when they are right."""
    found = [budget.mistake(result) for result, budget in zip(results, case.budgets, strict=True)]
    return next((f"{case.name}: {text}" for text in found if text), "")


def microseconds(call: Callable[[], Any], calls: int, device: str, flush: Any = None) -> float:
    """Median time of a call. On a GPU, between events around it; the flush before gives Python time to launch."""
    import torch

    if device == "cpu":  # for a dry run: says nothing about a GPU
        times = []
        for _ in range(calls):
            start = time.perf_counter()
            call()
            times.append(1e6 * (time.perf_counter() - start))
        return statistics.median(times)

    def batch(count: int) -> list[float]:
        events = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
        for before, after in events:
            flush.zero_()
            before.record()
            call()
            after.record()
        torch.cuda.synchronize()
        return [1e3 * before.elapsed_time(after) for before, after in events]

    slow = min(batch(2)) > 2000  # also warms up
    return statistics.median(batch(5 if slow else calls))


def looked_at(job: Job, cases: Sequence[Case], calls: int, device: str, flush: Any = None) -> dict[str, Any]:
    """Right or wrong, and how long: parts of a line."""
    import torch

    with torch.no_grad():
        namespace = run(job.code)
        for case in cases:
            model = model_of(namespace, case, device)
            wrong = mistake(outputs_of(model(*case.inputs)), case)
            if wrong:
                return {"correct": False, "error": wrong}
        model = model_of(namespace, cases[0], device)
        spent = microseconds(lambda: model(*cases[0].inputs), calls, device, flush)
    return {"correct": True, "error": "", "microseconds": round(spent, 3)}
