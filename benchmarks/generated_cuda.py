"""Generated CUDA kernels on a GPU: are they right, how fast are they, and how much does the schedule matter?

    python benchmarks/generated_cuda.py --tasks 250 --per-task 8 --out timings.jsonl

For each seed a procedural task is drawn and some of its schedules are compiled (NVRTC, in parallel processes), compared
with float64 truth within the judge's budget (given inputs at the timed size, shifted ones at the second, all
distributions at the held-out one) and timed with CUDA events at the first size, the L2 cache emptied before each call:
the median of --calls, with PyTorch's eager time beside it. A line of JSON for each kernel goes to --out; a file that
exists is continued. These are our own kernels, so there is no jail: what a policy writes goes through the judge.

The GPU is used by one child process. When a kernel kills it or hangs, that kernel's line says so, and a new child goes
on with the next. Needs torch, cupy and numpy only.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import os
import random
import re
import statistics
import sys
import tempfile
import time
import types
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.loader import variant_source
from tasks.procedural.cuda_kernels import cuda_kernels
from tasks.procedural.draw import FAMILIES, draw_graph
from tasks.procedural.graph import Graph
from tasks.procedural.shapes import Shape, draw_shapes
from tasks.procedural.torch_text import task_source

EPS = 2.0**-23
ERROR_FACTOR, FLOOR, MAX_L2 = 4.0, 64 * EPS, 0.5
"""The judge's budget (judge/verify.py, judge/settings.py)."""
PATIENCE = 60.0
"""Seconds without news from the GPU's process before it is ended."""


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


def jobs_of(seed: int, per_task: int, family: str | None = None) -> list[Job]:
    """The kernels of one seed's task: ``per_task`` of its schedules (all when 0), drawn at random."""
    graph = draw_graph(seed, family=family)
    shapes = draw_shapes(graph.family, seed)
    first = shapes.gpu[0]
    sizes = (first.rows, first.cols, first.inner or 0)
    kernels = cuda_kernels(graph, *sizes)
    if 0 < per_task < len(kernels):
        kernels = random.Random(f"schedules {seed}").sample(kernels, per_task)
    text = task_source(graph, f"generated_{seed}", shapes, seed)
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


def compiled(source: str, architecture: str, folder: str) -> tuple[str, str]:
    """Path of the cubin, or nothing and the first errors. Runs in a worker; needs no GPU."""
    from judge.load_cuda import compile_to_cubin

    try:
        code, errors = compile_to_cubin(source, (), architecture)
    except Exception as error:
        return "", f"NVRTC: {error}"
    if not code:
        return "", errors
    path = Path(folder) / f"{code_key(source)}.cubin"
    path.write_bytes(code)
    return str(path), ""


def run(source: str) -> dict[str, Any]:
    """A module's names."""
    module = types.ModuleType("source")
    exec(compile(source, "source", "exec"), module.__dict__)
    return module.__dict__


def outputs_of(result: Any) -> list[Any]:
    """The tensors of a forward's result."""
    return list(result) if isinstance(result, tuple | list) else [result]


def redrawn(x: Any, distribution: str) -> Any:
    """The judge's distributions (tasks/types.py)."""
    import torch

    if distribution == "ties":
        return x.round().masked_fill(torch.rand_like(x) < 0.5, 0)
    return {"given": x, "shifted": x + 1, "large": x * 50}[distribution]


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


def gpu_process(jobs: list[tuple[Job, str]], calls: int, pipe: Any) -> None:
    """Looks at kernels, jobs of one task together; tells of each first that it begins, then what was found."""
    import cupy
    import torch

    from judge import load_cuda

    paths = {embedded(job.code): path for job, path in jobs}
    load_cuda.set_compiler(lambda source, options: cupy.RawModule(path=paths[source]))
    flush = torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    known: tuple[int, list[Case], float] | None = None
    for number, (job, _) in enumerate(jobs):
        pipe.send((number, None))
        if known is None or known[0] != job.seed:
            known = None
            with torch.no_grad():
                cases, eager = cases_of(job, "cuda")
                inputs = cases[0].inputs
                spent = microseconds(lambda eager=eager, inputs=inputs: eager(*inputs), calls, "cuda", flush)
            known = (job.seed, cases, round(spent, 3))
        try:
            found = looked_at(job, known[1], calls, "cuda", flush)
            torch.cuda.synchronize()
        except Exception as error:
            text = f"{type(error).__name__}: {error}".splitlines()[0][:300]
            pipe.send((number, job.line(correct=False, error=text)))
            torch.cuda.synchronize()  # raises again where the GPU's state is lost: the parent starts a new process
            continue
        pipe.send((number, job.line(**found, eager_microseconds=known[2])))
    pipe.send((len(jobs), None))


def on_gpu(jobs: list[tuple[Job, str]], calls: int) -> Iterator[dict[str, Any]]:
    """The lines of all jobs, whatever becomes of the process that works on them."""
    context = multiprocessing.get_context("spawn")
    while jobs:
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(target=gpu_process, args=(jobs, calls, theirs), daemon=True)
        process.start()
        theirs.close()
        begun, done = -1, 0
        reason = "its process ended"
        while True:
            try:
                if not mine.poll(PATIENCE + 60 * (begun < 0)):
                    reason = f"no end after {PATIENCE:.0f} s"
                    break
                number, line = mine.recv()
            except (EOFError, OSError):
                break
            if line is None:
                begun = number
            else:
                done = number + 1
                yield line
            if begun == len(jobs):
                done = begun
                break
        process.join(10 if done == len(jobs) else 1)
        if process.is_alive():
            process.kill()
            process.join()
        if begun < 0:
            raise SystemExit("the GPU's process did not start: see its message above")
        if done <= begun < len(jobs):
            yield jobs[begun][0].line(correct=False, error=f"the GPU's process: {reason}")
            done = begun + 1
        jobs = jobs[done:]


def summary(lines: Iterable[dict[str, Any]]) -> list[str]:
    """Tables: by family, and by family and kind of schedule."""
    tasks: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        tasks[line["family"], line["seed"]].append(line)
    text = [f"{'family':<34}{'correct':>12}{'tasks':>7}{'median/best':>13}{'eager/best':>12}"]
    kinds: dict[tuple[str, str], list[float | None]] = defaultdict(list)
    for family in sorted({family for family, _ in tasks}):
        groups = [group for (name, _), group in tasks.items() if name == family]
        total, right, spreads, gains = 0, 0, [], []
        for group in groups:
            timed = [line["microseconds"] for line in group if line["correct"]]
            total, right = total + len(group), right + len(timed)
            for line in group:
                ratio = line["microseconds"] / min(timed) if line["correct"] else None
                kinds[family, kind_of(line["schedule"])].append(ratio)
            if len(timed) > 1:
                spreads.append(statistics.median(timed) / min(timed))
            gains += [line["eager_microseconds"] / min(timed) for line in group if line["correct"]][:1]
        text.append(f"{family:<34}{f'{right}/{total}':>12}{len(groups):>7}{_middle(spreads):>13}{_middle(gains):>12}")
    text.append(f"{'schedule':<50}{'correct':>12}{'x of best':>11}{'is best':>9}")
    for (family, kind), ratios in sorted(kinds.items()):
        timed = [ratio for ratio in ratios if ratio is not None]
        best = sum(ratio == 1.0 for ratio in timed)
        text.append(f"{f'{family} {kind}':<50}{f'{len(timed)}/{len(ratios)}':>12}{_middle(timed):>11}{best:>9}")
    return text


def kind_of(schedule: dict[str, int | str]) -> str:
    """A schedule without its sizes."""
    words = [str(schedule["kind"])]
    words += [str(schedule[key]) for key in ("keep", "coalesced") if key in schedule]
    return " ".join([*words, *(["vector"] if "vector" in schedule else [])])


def _middle(numbers: Sequence[float]) -> str:
    return f"{statistics.median(numbers):.2f}" if numbers else "-"


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a file; a last one that was cut off is left out."""
    found = []
    for text in path.read_text(encoding="utf-8").splitlines() if path.is_file() else []:
        try:
            found.append(json.loads(text))
        except ValueError:
            continue
    return found


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Check and time generated CUDA kernels on a GPU.")
    parser.add_argument("--tasks", type=int, default=250)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--family", choices=list(FAMILIES), help="tasks of this family only")
    parser.add_argument("--per-task", type=int, default=8, help="schedules for each task; 0: all")
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 4)
    parser.add_argument("--seconds", type=float, default=1e9, help="stop with what is done by then")
    parser.add_argument("--architecture", default="sm_90")
    parser.add_argument("--out", type=Path, default=Path("generated_cuda.jsonl"))
    given = parser.parse_args()
    start = time.monotonic()
    known = {(line["seed"], line["code"]) for line in read(given.out)}
    jobs = [
        job
        for seed in range(given.first, given.first + given.tasks)
        for job in jobs_of(seed, given.per_task, given.family)
        if (job.seed, code_key(job.code)) not in known
    ]
    print(f"{len(jobs)} kernels drawn, {len(known)} known, {time.monotonic() - start:.1f} s", flush=True)
    with tempfile.TemporaryDirectory() as folder, given.out.open("a", encoding="utf-8") as file:

        def write(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()
            if not line["correct"]:
                print(f"{line['family']} {line['seed']} {line['schedule']}: {line['error']}", flush=True)

        ready = []
        with ProcessPoolExecutor(given.workers, mp_context=multiprocessing.get_context("spawn")) as pool:
            made: list[Future[tuple[str, str]]] = [
                pool.submit(compiled, embedded(job.code), given.architecture, folder) for job in jobs
            ]
            for job, future in zip(jobs, made, strict=True):
                path, errors = future.result()
                if errors:
                    write(job.line(correct=False, error=errors))
                else:
                    ready.append((job, path))
        print(f"{len(ready)} compiled, {time.monotonic() - start:.1f} s", flush=True)
        for number, line in enumerate(on_gpu(ready, given.calls), start=1):
            write(line)
            if number % 200 == 0:
                print(f"{number} looked at, {time.monotonic() - start:.1f} s", flush=True)
            if time.monotonic() - start > given.seconds:
                print("time is up", flush=True)
                break
    print("\n".join(summary(read(given.out))))
    print(f"{time.monotonic() - start:.1f} s")


if __name__ == "__main__":
    main()
