"""The suite's expert kernels: how fast they are against eager PyTorch, and against what the machine can do at most.

    .venv/bin/python benchmarks/suite.py run --out runs/suite.jsonl --seconds 300        # goes on where it stopped
    .venv/bin/python benchmarks/suite.py run --device cuda --workers 8 --out runs/suite_cuda.jsonl
    .venv/bin/python benchmarks/suite.py table runs/suite.jsonl runs/suite_cuda.jsonl --write docs/suite.md

``run`` judges each expert of the backend with the default protocol and appends one JSON line for each: verdict, times,
interval, the bytes that a call must move and the floating-point operations of its products. ``table`` renders them.
The limit of a call is the longer of bytes / memory bandwidth and FLOPs / peak; the bandwidth and the peak of a CPU are
measured in the same run, with as many threads as the judge times with; a GPU's are the maker's figures.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from judge.settings import JudgeSettings
from judge.types import Candidate
from tasks.experts import expert_kernels
from tasks.loader import load_task, suite_tasks, variant_source
from tasks.types import ExpertKernel

GPU_LIMITS = {"H200": (4.8e12, 67e12), "H100": (3.35e12, 67e12), "A100": (2.0e12, 19.5e12)}
"""Bytes and float32 operations a second by the makers' data sheets."""
BACKENDS = {"cpu": ("cpp",), "cuda": ("cuda", "triton")}


@dataclass(frozen=True, kw_only=True)
class Row:
    """One judged expert: a line of the output."""

    task: str
    level: int
    device: str
    backend: str
    quality: str
    status: str
    message: str
    baseline_ms: float | None
    best_baseline: str | None
    eager_ms: float | None
    compile_ms: float | None
    expert_ms: float | None
    speedup: float | None
    low: float | None
    high: float | None
    timed_as: str | None
    bytes: int
    """Of inputs, parameters and outputs, each once."""
    flops: int
    """Of matrix products and convolutions; everything else is bound by memory."""
    bandwidth: float
    """Bytes a second that the machine can move at most."""
    peak: float
    """Float32 operations a second."""
    hardware: str
    judge_seconds: float

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.task, self.device, self.backend, self.quality

    @property
    def limit_ms(self) -> float:
        """Milliseconds that a call needs at the machine's limits (roofline model, Williams et al. 2009)."""
        return max(self.bytes / self.bandwidth, self.flops / self.peak) * 1e3

    @property
    def bound(self) -> str:
        return "memory" if self.bytes / self.bandwidth >= self.flops / self.peak else "compute"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, dest="command")
    run = commands.add_parser("run")
    run.add_argument("tasks", nargs="*", help="names; all of the suite when none is given")
    run.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    run.add_argument("--qualities", nargs="+", default=["excellent", "good", "plain"])
    run.add_argument("--out", type=Path, required=True)
    run.add_argument("--seconds", type=float, default=1e9, help="begin nothing new after so long")
    run.add_argument("--workers", type=int, default=1, help="judges side by side; one of them times at any moment")
    run.add_argument("--compile", action="store_true", help="torch.compile as a baseline too (GPU only)")
    run.add_argument("--pairs", type=int, help="process pairs in place of the default")
    table = commands.add_parser("table")
    table.add_argument("lines", nargs="+", type=Path)
    table.add_argument("--write", type=Path)
    table.add_argument("--note", default="", help="a sentence on the circumstances, put under the introduction")
    arguments = parser.parse_args()
    if arguments.command == "table":
        from_lines = [row for path in arguments.lines for row in read(path).values()]
        text = render(from_lines, arguments.note)
        if arguments.write:
            arguments.write.write_text(text)
        else:
            print(text)
        return
    measure(arguments)


def read(path: Path) -> dict[tuple[str, str, str, str], Row]:
    """Rows by key, later lines in place of earlier ones; a line that a kill cut off is left out."""
    rows = {}
    for line in path.read_text().splitlines() if path.exists() else ():
        try:
            row = Row(**json.loads(line))
        except (json.JSONDecodeError, TypeError):
            continue
        rows[row.key] = row
    return rows


def measure(arguments: argparse.Namespace) -> None:
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    done = read(arguments.out)
    end = time.monotonic() + arguments.seconds
    settings = JudgeSettings(
        device=arguments.device,
        cuda_compile_baseline=arguments.compile,
        **({"pairs": arguments.pairs, "cuda_pairs": arguments.pairs} if arguments.pairs else {}),
    )
    names = arguments.tasks or [task.name for task in suite_tasks()]
    orders = [(name, kernels) for name in names if (kernels := left(name, arguments, done))]
    print(f"{len(done)} lines there, {sum(len(kernels) for _, kernels in orders)} to judge", flush=True)
    if not orders:
        return
    limits = measured_limits(arguments.device, settings.threads)
    print(f"limits: {limits[0] / 1e9:.1f} GB/s, {limits[1] / 1e9:.1f} GFLOP/s", flush=True)
    # Each worker has a process of its own: a judge is made for one thread, and CUDA does not outlive a fork.
    context = multiprocessing.get_context("spawn")
    given = [(name, kernels, settings, limits, end) for name, kernels in orders]
    work = work_of_all([name for name, _ in orders], arguments.device)  # before anything is timed
    with context.Pool(arguments.workers) as pool, arguments.out.open("a") as out:
        for rows in pool.imap_unordered(judged, given):
            for row in rows:
                moved, flops = work.get(row.task, (0, 0))
                row = replace(row, bytes=moved, flops=flops)
                out.write(json.dumps(asdict(row)) + "\n")
                out.flush()
                shown = f"{row.speedup:.2f}x [{row.low:.2f}, {row.high:.2f}]" if row.speedup else row.message[:100]
                print(f"{row.task:22} {row.backend:6} {row.quality:9} {row.status:13} {shown}", flush=True)


def left(name: str, arguments: argparse.Namespace, done: dict[Any, Row]) -> list[ExpertKernel]:
    return [
        kernel
        for backend in BACKENDS[arguments.device]
        for kernel in expert_kernels(name, backend)
        if kernel.quality in arguments.qualities and (name, arguments.device, backend, kernel.quality) not in done
    ]


_JUDGE: Any = None


def judged(order: tuple[str, list[ExpertKernel], JudgeSettings, tuple[float, float], float]) -> list[Row]:
    """Rows of one task's experts, without its work; in a worker, whose judge is kept from task to task."""
    global _JUDGE
    from judge.api import Judge

    name, kernels, settings, (bandwidth, peak), end = order
    if time.monotonic() > end:
        return []
    task = load_task(name)
    if _JUDGE is None:
        _JUDGE = Judge(settings)
    rows = []
    for kernel in kernels:
        if time.monotonic() > end:
            break
        began = time.monotonic()
        try:
            verdict = _JUDGE.judge(task, Candidate(code=kernel.code))
        except Exception as error:  # one task's fault must not end the table
            print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            continue
        times = verdict.baselines
        rows.append(
            Row(
                task=name,
                level=task.level,
                device=settings.device,
                backend=kernel.backend,
                quality=kernel.quality,
                status=str(verdict.status),
                message=verdict.message,
                baseline_ms=getattr(times, verdict.best_baseline) if verdict.best_baseline else None,
                best_baseline=verdict.best_baseline,
                eager_ms=times.eager,
                compile_ms=times.compile,
                expert_ms=verdict.candidate_ms,
                speedup=verdict.speedup,
                low=verdict.speedup_low,
                high=verdict.speedup_high,
                timed_as=verdict.timed_as,
                bytes=0,
                flops=0,
                bandwidth=bandwidth,
                peak=peak,
                hardware=verdict.hardware.get("gpu") or verdict.hardware.get("cpu", ""),
                judge_seconds=round(time.monotonic() - began, 2),
            )
        )
    return rows


def work_of_all(names: list[str], device: str) -> dict[str, tuple[int, int]]:
    """(bytes, FLOPs) of a call of each task's default variant, in one process of its own, where nothing is computed."""
    sources = {}
    for task in map(load_task, names):
        sources[task.name] = variant_source(task.source, task.variants_on(device)[0].constants)
    done = subprocess.run(
        [sys.executable, __file__, "--count"], input=json.dumps(sources), stdout=subprocess.PIPE, text=True, check=False
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    return {name: (int(moved), int(flops)) for name, moved, flops in lines}


def count_all() -> None:
    """For ``work_of_all``: sources as JSON on standard input; name, bytes and FLOPs on lines of standard output."""
    import torch

    torch.set_num_threads(1)
    for name, source in json.load(sys.stdin).items():
        for device in ("meta", "cpu"):  # without data where that can be, else for real
            try:
                print(name, *count(source, device), flush=True)
                break
            except Exception as error:
                print(f"{name}: not counted on {device}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)


def count(source: str, device: str) -> tuple[int, int]:
    """(bytes, FLOPs) of one call of the suite's own, trusted code."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    def tensors(value: Any) -> Iterator[Any]:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            for item in value:
                yield from tensors(item)

    names: dict[str, Any] = {"__name__": "task"}
    with torch.no_grad(), torch.device(device):
        exec(compile(source, "task.py", "exec"), names)
        model = names["Model"](*names["get_init_inputs"]()).eval()
        inputs = names["get_inputs"]()
        with FlopCounterMode(display=False) as counter:
            outputs = model(*inputs)
    parts = [*tensors(inputs), *tensors(outputs), *model.state_dict().values()]
    return sum(t.numel() * t.element_size() for t in parts), counter.get_total_flops()


def measured_limits(device: str, threads: int) -> tuple[float, float]:
    """(bytes, float32 operations) a second."""
    code = f"import benchmarks.suite as s; print(*s.{'gpu' if device == 'cuda' else 'cpu'}_limits({threads}))"
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, "PYTHONPATH": f"{root}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    bandwidth, peak = map(float, done.stdout.split()[-2:])
    return bandwidth, peak


def gpu_limits(_: int) -> tuple[float, float]:
    """By the name of the GPU. Raises KeyError for one that GPU_LIMITS lacks."""
    import torch

    found = torch.cuda.get_device_name()
    return next(limits for name, limits in GPU_LIMITS.items() if name in found)


def cpu_limits(threads: int) -> tuple[float, float]:
    """The best of several runs: STREAM's triad a = b + s * c (McCalpin 1995) over arrays far larger than the caches,
    counting three arrays, and the product of two 1024 x 1024 matrices."""
    import torch

    torch.set_num_threads(threads)
    a, b, c = (torch.rand(1 << 25) for _ in range(3))
    triad = _best(lambda: torch.add(b, c, alpha=3.0, out=a), 8)
    x, y, z = (torch.rand(1024, 1024) for _ in range(3))
    product = _best(lambda: torch.mm(x, y, out=z), 8)
    return 3 * a.nbytes / triad, 2 * 1024**3 / product


def _best(work: Any, times: int) -> float:
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def render(rows: list[Row], note: str = "") -> str:
    """docs/suite.md."""
    parts = ["# The suite, measured\n", INTRODUCTION, *([f"{note}\n"] if note else [])]
    for device in ("cuda", "cpu"):
        for quality in ("excellent", "good", "plain"):
            some = [row for row in rows if (row.device, row.quality) == (device, quality)]
            if some:
                parts.append(section(device, quality, some))
    return "\n".join(parts)


COLUMNS = (
    *("task", "level", "backend", "verdict", "baseline ms", "torch.compile ms", "expert ms"),
    *("speedup", "99% interval", "limit ms", "share", "bound"),
)
INTRODUCTION = """\
Made by `benchmarks/suite.py` (its head says how); the figures are of the machines named and say nothing of others.
*Limit* is the time that a call needs at least: the longer of its bytes over the memory's bandwidth and its products'
floating-point operations over the peak. *Share* is limit / expert: 100% cannot be beaten, and above 100% the data lay
in a cache. What a task reads only a part of (a table of embeddings, a cache of keys) is counted whole, so there the
share is too high. The interval is the judge's 99% one; a baseline is eager PyTorch unless another one is named.
"""


def section(device: str, quality: str, rows: list[Row]) -> str:
    first = rows[0]
    won = [row for row in rows if row.status == "win"]
    correct = [row for row in rows if row.status in ("win", "correct")]
    lines = [
        f"## {'GPU' if device == 'cuda' else 'CPU'}: {quality} experts\n",
        f"{first.hardware}; {first.bandwidth / 1e9:,.1f} GB/s, {first.peak / 1e9:,.0f} GFLOP/s. "
        f"{len(correct)} of {len(rows)} are correct, {len(won)} win"
        + (
            f", geometric mean of the correct ones {_geomean([row.speedup or 1 for row in correct]):.2f}x.\n"
            if correct
            else ".\n"
        ),
        f"| {' | '.join(COLUMNS)} |",
        "|---" * len(COLUMNS) + "|",
    ]
    for row in sorted(rows, key=lambda row: (row.level, row.task, row.backend)):
        named = f" ({row.best_baseline})" if row.best_baseline not in (None, "eager") else ""
        share = f"{row.limit_ms / row.expert_ms:.0%}" if row.expert_ms and row.bytes else "–"
        cells = [
            row.task,
            str(row.level),
            row.backend,
            row.status,
            _number(row.baseline_ms) + named,
            _number(row.compile_ms),
            _number(row.expert_ms),
            f"{row.speedup:.2f}" if row.speedup else "–",
            f"{row.low:.2f} to {row.high:.2f}" if row.low and row.high else "–",
            _number(row.limit_ms) if row.bytes else "–",
            share,
            row.bound if row.bytes else "–",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}" if value < 0.1 else f"{value:.3f}"


def _geomean(values: list[float]) -> float:
    import math

    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        count_all()
    else:
        main()
