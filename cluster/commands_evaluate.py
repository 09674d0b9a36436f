"""The command that measures a policy: evaluate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cluster.arguments import config_of
from cluster.commands_cluster import ConfigArguments


def register(app: typer.Typer) -> None:
    """Add this command to the command line."""
    app.command()(evaluate)


def evaluate(
    arguments: ConfigArguments = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            metavar="SOURCE",
            help='"suite", a task file, a folder of them, or procedural:SPLIT:NUMBER; procedural:test:50 if left out. '
            "Repeatable.",
        ),
    ] = None,
    samples: Annotated[int, typer.Option(min=1, help="Completions of each task.")] = 4,
    timed: Annotated[
        bool, typer.Option("--timed/--untimed", help="Time what is correct too; otherwise it is only verified.")
    ] = False,
    out: Annotated[Path, typer.Option(metavar="FOLDER", help="For answers.jsonl and summary.json.")] = Path(
        "runs/evaluate"
    ),
) -> None:
    """Sample completions for tasks without exemplars, judge them, and print the share that is correct."""
    from functools import partial

    from rich import box
    from rich.console import Console
    from rich.table import Table

    config = config_of(arguments or [])

    from cluster.evaluate import Plan
    from cluster.evaluate import evaluate as run_evaluation
    from cluster.evaluation import table as rows_of
    from tasks.sources import load_tasks

    sources = {source: load_tasks(source) for source in tasks or ["procedural:test:50"]}
    plan = Plan(sources=sources, samples=samples, timed=timed, out=out)
    summary = run_evaluation(config, plan, partial(print, flush=True))
    heading, *rows = rows_of(summary)
    shown = Table(*heading, box=box.SIMPLE_HEAD)
    for row in rows:
        shown.add_row(*row)
    Console(highlight=False).print(shown)
    typer.echo(f"95% intervals over tasks; {out / 'summary.json'} and {out / 'answers.jsonl'}")
