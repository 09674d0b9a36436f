"""How many records a second the archive takes: one writer one by one, one in batches, several at once.

    python benchmarks/archive_write.py [--records 4000] [--writers 16] [--url postgresql+psycopg://...]

Each record is as large as one of a run: a kernel of the suite, an answer of 4 KB, a verdict with all its fields. The
issue's aim is 2,000 records/s. The floor beside it is the same bytes appended to a file with a flush for each record.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from archive.store import Archive
from archive.types import Record
from judge.types import Baselines, Status, Verdict
from tasks.experts import expert_kernels
from tasks.loader import suite_tasks


def main() -> None:
    """Print a line a way of writing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=4000)
    parser.add_argument("--writers", type=int, default=16)
    parser.add_argument("--url", help="an empty database; a new SQLite file if left out")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        url = arguments.url or str(Path(folder) / "archive.db")
        records = make_records("one", arguments.records)
        floor = rate(arguments.records, lambda: append_to_file(Path(folder) / "floor", records))
        print(f"{'way':<34} {'records/s':>10} {'of the floor':>13}")
        print(f"{'a flushed line a record (floor)':<34} {floor:>10.0f} {1:>12.0%}")
        archive = Archive(url)
        singly = rate(len(records), lambda: [archive.add(record) for record in records])
        print(f"{'one writer, add':<34} {singly:>10.0f} {singly / floor:>12.0%}")
        batch = make_records("batch", arguments.records)
        batched = rate(len(batch), lambda: [archive.add_many(batch[at : at + 64]) for at in range(0, len(batch), 64)])
        print(f"{'one writer, add_many of 64':<34} {batched:>10.0f} {batched / floor:>12.0%}")
        many = make_records("threads", arguments.records)
        shared = rate(len(many), lambda: _by_threads(archive, many, arguments.writers))
        print(f"{f'{arguments.writers} threads, add':<34} {shared:>10.0f} {shared / floor:>12.0%}")
        archive.close()
        for size in (1, 64):
            each = arguments.records // arguments.writers
            together = several(url, arguments.writers, each, size)
            name = f"{arguments.writers} processes, " + ("add" if size == 1 else f"add_many of {size}")
            print(f"{name:<34} {together:>10.0f} {together / floor:>12.0%}")
        read = rate(Archive(url).count(), lambda: sum(1 for _ in Archive(url).iterate()))
        print(f"{'reading all':<34} {read:>10.0f}")


def make_records(name: str, number: int) -> list[Record]:
    """Records as a run makes them, made before the clock starts."""
    task = suite_tasks()[0]
    code = expert_kernels(task.name)[0].code
    verdict = Verdict(
        status=Status.WIN,
        speedup=2.0,
        speedup_low=1.9,
        speedup_high=2.1,
        candidate_ms=0.5,
        baselines=Baselines(eager=1.0),
        best_baseline="eager",
        max_error=0.1,
        tolerance=1.0,
        phase_seconds={"compile": 0.4, "verify": 0.2, "time": 1.1},
        sandbox=("netns", "landlock", "seccomp", "rlimits"),
        hardware={"cpu": "a processor", "threads": "1"},
    )
    return [
        Record(
            record_id=f"{name}-{i}",
            run_id="benchmark",
            task_name=task.name,
            task_id=task.task_id,
            source="policy",
            operator="contrast",
            code=f"{code}# {i}\n",
            completion="x" * 4096,
            parents=("a" * 32, "b" * 32),
            group_id="g",
            step=i // 16,
            policy_version=1,
            verdict=verdict,
        )
        for i in range(number)
    ]


def append_to_file(path: Path, records: list[Record]) -> None:
    """The least that keeps a record when the writer is killed."""
    with path.open("w") as file:
        for record in records:
            file.write(record.model_dump_json() + "\n")
            file.flush()


def rate(number: int, work: Callable[[], object]) -> float:
    """Items a second."""
    start = time.perf_counter()
    work()
    return number / (time.perf_counter() - start)


def _by_threads(archive: Archive, records: list[Record], writers: int) -> None:
    with ThreadPoolExecutor(writers) as pool:
        list(pool.map(archive.add, records))


def several(url: str, writers: int, each: int, size: int) -> float:
    """Records a second of several processes that start together, from the first start to the last end."""
    context = multiprocessing.get_context("spawn")
    ready, go, ends = context.Semaphore(0), context.Event(), context.SimpleQueue()
    processes = [
        context.Process(target=_write, args=(url, f"{size}-{n}", each, size, ready, go, ends)) for n in range(writers)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    start = time.perf_counter()
    go.set()
    last = max(ends.get() for _ in processes)
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        raise SystemExit("a writer failed")
    return writers * each / (last - start)


def _write(url: str, name: str, number: int, size: int, ready: Any, go: Any, ends: Any) -> None:
    records = make_records(name, number)
    archive = Archive(url)
    archive.count()
    ready.release()
    go.wait()
    for at in range(0, number, size):
        archive.add_many(records[at : at + size])
    ends.put(time.perf_counter())  # one clock for all processes of a Linux machine


if __name__ == "__main__":
    main()
