"""`warpsmith optimize`: the search of serving/optimizer.py on a Ray cluster of its own, told to a terminal or a log."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cluster.commands_data import write_text
from cluster.config import Config
from cluster.interrupts import sigterm_as_interrupt
from tasks.types import Task

if TYPE_CHECKING:
    from archive.store import Archive
    from archive.types import Record
    from serving.optimizer import OnRecord, OptimizeResult, Workbench

Say = Callable[[str], None]


def optimize_command(
    task: Task,
    config: Config,
    *,
    max_candidates: int,
    budget_seconds: float | None = None,
    out: Path | None = None,
    archive_url: str | None = None,
) -> int:
    """Search, and write the best verified kernel to `out`; returns 0 when there is one, 1 when none was faster.

    Everything that was judged is in the archive, after Ctrl-C (KeyboardInterrupt) too.
    Raises TaskError, ConfigError, LearnerError, ActorError in one line each.
    """
    from archive.store import Archive
    from cluster.serve import optimizer_archive
    from serving.optimizer import optimize_task

    path = out or Path(f"{task.name}_fast.py")
    url = archive_url or optimizer_archive(config)
    with sigterm_as_interrupt(), ExitStack() as stack:
        archive = Archive(url)
        stack.callback(archive.close)
        say, on_record = stack.enter_context(_progress(max_candidates))
        say(f"optimizing {task.name}: at most {max_candidates} candidates; archive {url.removeprefix('sqlite:///')}")
        earlier = archive.count(task_id=task.task_id)
        if earlier:
            say(f"{earlier} records of this task are there already")
        bench = stack.enter_context(_workbench(config, archive, say))
        result = optimize_task(
            task, bench, max_candidates=max_candidates, budget_seconds=budget_seconds, on_record=on_record
        )
    return _report(result, path, url)


@contextmanager
def _workbench(config: Config, archive: Archive, say: Say) -> Iterator[Workbench]:
    """The pools, without a learner: the policy stays as it is."""
    from actors.pools import EvaluatorPool, RolloutPool
    from cluster.session import ray_cluster
    from learner.pretrained import prepare_model
    from serving.optimizer import Workbench

    def warn(line: str) -> None:
        say(f"warning: {line}")

    say(f"model {config.model.path}")
    model_dir = prepare_model(config.model.path)
    with ExitStack() as stack:
        stack.enter_context(ray_cluster(config))
        evaluators = EvaluatorPool(config.judge, config.evaluators, config.timeouts, on_event=warn)
        stack.callback(evaluators.close)
        rollout = RolloutPool(model_dir, config.rollout, config.timeouts, seed=config.run.seed, on_event=warn)
        stack.callback(rollout.close)
        yield Workbench(
            rollout=rollout,
            evaluators=evaluators,
            archive=archive,
            search=config.search,
            prompts_per_round=config.rollout.actors,
            seed=config.run.seed,
        )


@contextmanager
def _progress(total: int) -> Iterator[tuple[Say, OnRecord]]:
    """A progress bar under the verdicts on a terminal, plain lines elsewhere."""
    best = 0.0

    def line(record: Record, asked: int) -> str:
        from cluster.judging import describe

        who = record.operator if record.operator == "confirm" else record.source
        return f"  {asked}/{total} {who}: {describe(record.verdict)}"

    if not sys.stdout.isatty():
        yield (lambda text: print(text, flush=True)), (lambda record, asked: print(line(record, asked), flush=True))
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns: tuple[Any, ...] = (
        TextColumn("candidates"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[best]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(highlight=False), transient=True) as progress:
        bar = progress.add_task("candidates", total=total, best="")

        def on_record(record: Record, asked: int) -> None:
            nonlocal best
            best = max(best, record.score)
            progress.console.print(line(record, asked), markup=False, soft_wrap=True)
            progress.update(bar, completed=asked, best=f"best {best:.2f}x" if best else "none correct yet")

        yield (lambda text: progress.console.print(text, markup=False, soft_wrap=True)), on_record


def _report(result: OptimizeResult, path: Path, url: str) -> int:
    """Say what came of it, and write the kernel."""
    counts = ", ".join(f"{count} {status}" for status, count in sorted(result.statuses.items())) or "nothing new"
    stopped = {"budget": "the budget is spent", "candidates": "done", "caller": "stopped"}[result.stopped_by]
    print(f"{stopped} after {result.seconds:.0f} s: {result.asked} candidates asked for, {counts}")
    if result.best is None:
        print(f"no candidate was verified faster; {_best_correct(result.best_correct)}")
        return 1
    from archive.standalone import export_candidate

    verdict = result.best.verdict
    write_text(path, export_candidate(result.best, result.task))
    print(
        f"best: {verdict.speedup:.2f}x, 99% interval [{verdict.speedup_low:.2f}, {verdict.speedup_high:.2f}] against "
        f"{verdict.best_baseline}, confirmed on new process pairs; written by {result.best.source}"
    )
    print(f"kernel: {path} (record {result.best.record_id} of {url.removeprefix('sqlite:///')})")
    return 0


def _best_correct(record: Record | None) -> str:
    if record is None:
        return "none was correct"
    from cluster.judging import describe

    return f"best correct: {describe(record.verdict)} by {record.source}, record {record.record_id}"
