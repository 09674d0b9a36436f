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
import itertools
import json
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.procedural.cuda_check import (
    Case,
    Job,
    cases_of,
    code_key,
    embedded,
    jobs_of,
    looked_at,
    microseconds,
)
from tasks.procedural.draw import FAMILIES
from tasks.procedural.generate import generated_task, tasks_of

PATIENCE = 60.0
"""Seconds without news from the GPU's process before it is ended."""


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
    parser.add_argument("--split", choices=["train", "validation", "test"], help="tasks of this split only")
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
    if given.split:
        drawn = list(itertools.islice(tasks_of(given.split, given.first, given.family), given.tasks))
    else:
        drawn = [generated_task(given.first + number, family=given.family) for number in range(given.tasks)]
    jobs = [
        job for task in drawn for job in jobs_of(task, given.per_task) if (job.seed, code_key(job.code)) not in known
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
