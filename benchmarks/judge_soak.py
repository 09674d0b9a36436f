"""Endurance: hostile and honest candidates in random order; is a verdict ever wrong, is anything ever left behind?

    .venv/bin/python benchmarks/judge_soak.py --candidates 10000
    .venv/bin/python benchmarks/judge_soak.py --candidates 200 --actors 2      # through a pool of evaluator actors

The candidates are the red team's (tests/redteam): each file says which verdicts are right. Every --every candidates,
and at the end, processes, open files, shared memory, files in the temporary folder (one of its own) and this process's
memory are compared with what they were after the first --settle candidates; what has grown beyond its allowance is a
leak. Prints a line a look and ends with exit code 1 when a verdict was wrong or something leaked.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from judge.api import Judge
from judge.settings import JudgeSettings
from judge.types import Candidate, Verdict
from tasks.loader import load_task
from tasks.types import Task

REDTEAM = Path(__file__).parents[1] / "tests" / "redteam"
SETTINGS = JudgeSettings(
    pairs=3, calls=4, warmup_calls=1, call_seconds=3, load_seconds=6, compile_seconds=6, memory_mb=2048
)
ALLOWED = {"processes": 0, "open files": 4, "shared memory": 0, "temporary files": 0, "MB of memory": 200}
"""Growth since the first look."""
_OTHERS = ("ray", "plasma", "psm_", "sem.", "torch_")
"""Beginnings of names that Ray and torch give to what is theirs."""


@dataclass(frozen=True, kw_only=True)
class Case:
    name: str
    expected: frozenset[str]
    task: Task
    candidate: Candidate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--candidates", type=int, default=1000)
    parser.add_argument("--every", type=int, default=100, help="candidates between two looks")
    parser.add_argument("--settle", type=int, default=50, help="candidates before the first look")
    parser.add_argument("--actors", type=int, default=0, help="evaluator actors on a Ray cluster; 0: one judge, here")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--skip-slow", action="store_true", help="leave out what must run into a deadline")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(1 << 32)
    cases = corpus(arguments.skip_slow)
    chosen = random.Random(seed).choices(cases, k=arguments.candidates)
    print(f"{arguments.candidates} candidates of {len(cases)} files, seed {seed}", flush=True)
    wrong: list[str] = []
    leaks: list[str] = []
    statuses: Counter[str] = Counter()
    began, first = time.monotonic(), None
    with ExitStack() as stack:
        # Jailed code that could reach /tmp would be seen by the red team's tests; others may be busy there meanwhile.
        tempfile.tempdir = os.environ["TMPDIR"] = stack.enter_context(tempfile.TemporaryDirectory(prefix="soak"))
        verdicts = stack.enter_context(_Pool(arguments.actors)) if arguments.actors else stack.enter_context(_Single())
        for number, (case, verdict) in enumerate(verdicts.judge(chosen), start=1):
            statuses[str(verdict.status)] += 1
            if str(verdict.status) not in case.expected:
                wrong.append(f"{case.name}: {verdict.status}: {verdict.message}")
                print(f"WRONG {wrong[-1]}", flush=True)
            if number == min(arguments.settle, arguments.candidates):
                first = look()
                print(_line(number, began, first), flush=True)
            elif first and (number % arguments.every == 0 or number == arguments.candidates):
                now = look()
                # Actors are at work while they are looked at: each has up to some players, until all is done.
                busy = 16 * arguments.actors if number < arguments.candidates else 0
                leaks = grown(first, now, busy)
                print(_line(number, began, now) + "".join(f"  LEAK {leak}" for leak in leaks), flush=True)
    left = [child for child in psutil.Process().children(recursive=True) if child.is_running()]
    leaks += [f"process {child.pid} after the end" for child in left]
    counts = ", ".join(f"{count} {status}" for status, count in statuses.most_common())
    print(f"{arguments.candidates} candidates in {time.monotonic() - began:.0f} s: {counts}")
    print(f"{len(wrong)} wrong verdicts, {len(leaks)} leaks{''.join(f'; {leak}' for leak in leaks)}")
    sys.exit(1 if wrong or leaks else 0)


def corpus(skip_slow: bool) -> list[Case]:
    """The red team's files; the third line of one may name its task."""
    cases = []
    for path in sorted([*REDTEAM.glob("attacks/*.py"), *REDTEAM.glob("controls/*.py")]):
        text = path.read_text()
        lines = text.splitlines()
        expected = frozenset(lines[0].removeprefix("# expect: ").split("|"))
        named = re.match(r"# task: (\w+)", lines[2])
        if not (skip_slow and "timeout" in expected):
            task = load_task(REDTEAM / f"{named[1] if named else 'task'}.py")
            cases.append(Case(name=path.stem, expected=expected, task=task, candidate=Candidate(code=text)))
    return cases


def look() -> dict[str, int]:
    """What there is of everything that could be left behind; some is still on its way out, so the least of a second."""
    looks, temporary = [], Path(tempfile.gettempdir())
    for _ in range(5):
        process = psutil.Process()
        looks.append(
            {
                "processes": len(process.children(recursive=True)),
                "open files": process.num_fds(),
                "shared memory": sum(not path.name.startswith(_OTHERS) for path in Path("/dev/shm").iterdir()),
                "temporary files": sum(not path.name.startswith(_OTHERS) for path in temporary.iterdir()),
                "MB of memory": process.memory_info().rss >> 20,
            }
        )
        time.sleep(0.2)
    return {name: min(one[name] for one in looks) for name in ALLOWED}


def grown(first: dict[str, int], now: dict[str, int], busy: int) -> list[str]:
    """What there is more of than ALLOWED; ``busy`` more processes and files may be at work."""
    spare = {"processes": busy, "open files": busy, "temporary files": busy}
    return [
        f"{name}: {first[name]} -> {now[name]}"
        for name, most in ALLOWED.items()
        if now[name] > first[name] + most + spare.get(name, 0)
    ]


def _line(number: int, began: float, now: dict[str, int]) -> str:
    seconds = time.monotonic() - began
    facts = ", ".join(f"{value} {name}" for name, value in now.items())
    return f"{number:6}  {seconds:7.0f} s  {seconds / number:5.2f} s each  {facts}"


class _Single:
    """One judge in this process."""

    def __enter__(self) -> _Single:
        self._judge = Judge(SETTINGS)
        return self

    def __exit__(self, *_: object) -> None:
        self._judge.close()

    def judge(self, cases: list[Case]) -> Iterator[tuple[Case, Verdict]]:
        for case in cases:
            yield case, self._judge.judge(case.task, case.candidate)


class _Pool:
    """Evaluator actors on a Ray cluster of their own."""

    def __init__(self, actors: int) -> None:
        self._actors = actors

    def __enter__(self) -> _Pool:
        import ray

        from actors.evaluator_pool import EvaluatorPool
        from actors.settings import EvaluatorSettings, Timeouts

        self._stack = ExitStack()
        ray.init(num_cpus=self._actors + 1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        self._stack.callback(ray.shutdown)
        settings = EvaluatorSettings(actors=self._actors)
        self._pool: Any = self._stack.enter_context(EvaluatorPool(SETTINGS, settings, Timeouts(), on_event=print))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def judge(self, cases: list[Case]) -> Iterator[tuple[Case, Verdict]]:
        from actors.types import JudgeJob

        jobs = (
            JudgeJob(job_id=str(number), task=case.task, candidate=case.candidate, payload=case)
            for number, case in enumerate(cases)
        )
        for result in self._pool.judge(jobs):
            yield result.job.payload, result.verdict


if __name__ == "__main__":
    main()
