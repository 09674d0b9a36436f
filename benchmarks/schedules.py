"""Does the schedule matter? The median over the best time of a generated task's kernels, by family and shape.

    python benchmarks/schedules.py --tasks 12 --out schedules.jsonl       # C++, measured here; a file goes on
    python benchmarks/schedules.py --timings timings.jsonl                # CUDA, from benchmarks/generated_cuda.py

A spread of 1 means that any schedule will do, so that there is nothing to learn from speed. Families below 1.15 need
better schedules, or less weight in tasks/procedural/draw.py. The line for PyTorch says how the best kernel compares.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tasks.procedural.draw import FAMILIES
from tasks.procedural.generate import generated_task, tasks_of

LEAST = 1.15
WIDTHS = ((64, "cols <= 64"), (1024, "cols <= 1024"), (1 << 62, "cols > 1024"))


def measured(family: str, number: int, seed: int, done: set[tuple[str, int]], threads: int) -> Iterator[dict[str, Any]]:
    """A line for each task that is not done yet: its best and median time, and PyTorch's."""
    from cluster.generated_cpp import measure
    from judge.settings import JudgeSettings

    for task in itertools.islice(tasks_of("train", seed, family), number):
        if (family, task.seed) in done:
            continue
        kernels = [k for k in task.kernels("cpp") if threads > 1 or ("threads", "all") not in k.schedule]
        (found,) = measure([(task, kernels)], JudgeSettings(threads=threads))
        for one in found:
            if one.fault:
                print(f"wrong: {task.task.name} {dict(one.kernel.schedule)}: {one.fault}", file=sys.stderr)
        good = sorted((one.microseconds, dict(one.kernel.schedule)) for one in found if one.correct)
        if len(good) > 1:
            yield line(family, task.seed, task.shapes.cpu[0].sizes, good, found[0].eager_microseconds)


def line(
    family: str, seed: int, sizes: Sequence[int | None], times: Sequence[tuple[float, Any]], eager: float
) -> dict[str, Any]:
    """What is kept of a task."""
    ordered = sorted(microseconds for microseconds, _ in times)
    return {
        "family": family,
        "seed": seed,
        "sizes": list(sizes),
        "kernels": len(ordered),
        "best": ordered[0],
        "median": statistics.median(ordered),
        "eager": eager,
        "schedule": times[0][1],
    }


def from_timings(path: Path) -> Iterator[dict[str, Any]]:
    """The same lines from the timings of CUDA kernels."""
    tasks: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for text in path.read_text("utf-8").splitlines():
        row = json.loads(text)
        if row.get("correct") and row.get("microseconds"):
            tasks[row["seed"]].append(row)
    for seed, rows in tasks.items():
        if len(rows) > 1:
            times = sorted(((row["microseconds"], row["schedule"]) for row in rows), key=lambda pair: pair[0])
            family = rows[0].get("family") or generated_task(seed).family
            yield line(family, seed, rows[0]["sizes"], times, rows[0]["eager_microseconds"])


def table(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Markdown: a row for each family and width of its grid."""
    cells: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for one in lines:
        width = next(name for most, name in WIDTHS if one["sizes"][1] <= most)
        cells[one["family"], width].append(one)
        cells[one["family"], "all"].append(one)
    yield "| family | shapes | tasks | kernels a task | spread: median over best | best over eager |"
    yield "|---|---|---|---|---|---|"
    for family in FAMILIES:
        for width in (*(name for _, name in WIDTHS), "all"):
            rows = cells.get((family, width))
            if not rows:
                continue
            spreads = sorted(row["median"] / row["best"] for row in rows)
            gains = [row["eager"] / row["best"] for row in rows]
            kernels = statistics.mean(row["kernels"] for row in rows)
            low = " (low)" if statistics.median(spreads) < LEAST else ""
            yield (
                f"| {family} | {width} | {len(rows)} | {kernels:.0f} | {statistics.median(spreads):.2f}{low} "
                f"({spreads[0]:.2f} to {spreads[-1]:.2f}) | {statistics.median(gains):.2f}x |"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tasks", type=int, default=12, help="of each family")
    parser.add_argument("--family", choices=list(FAMILIES), help="only this one")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, help="a line for each task; a file that exists goes on")
    parser.add_argument("--timings", type=Path, help="CUDA, measured by benchmarks/generated_cuda.py")
    given = parser.parse_args()
    if given.timings:
        print("\n".join(table(from_timings(given.timings))))
        return
    kept = [json.loads(text) for text in given.out.read_text().splitlines()] if given.out and given.out.exists() else []
    done = {(row["family"], row["seed"]) for row in kept}
    for family in [given.family] if given.family else FAMILIES:
        for row in measured(family, given.tasks, given.seed, done, given.threads):
            kept.append(row)
            print(f"{family} {row['seed']}: {row['median'] / row['best']:.2f}", file=sys.stderr)
            if given.out:
                with given.out.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    print("\n".join(table(kept)))


if __name__ == "__main__":
    main()
