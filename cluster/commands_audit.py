"""The command `audit`: a whole collection of candidates, judged."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path
from typing import Annotated, Literal

import typer

from cluster.arguments import stdout_for_result
from cluster.errors import ConfigError


def register(app: typer.Typer) -> None:
    """Add the command to the command line."""
    app.command()(audit)


def audit(
    collection: Annotated[
        Path,
        typer.Argument(
            metavar="FILE_OR_FOLDER",
            help="A folder of candidate files beside task.py, CUDA-L1's JSON, or the AI CUDA Engineer's Parquet.",
        ),
    ],
    task: Annotated[str | None, typer.Option(help="For a folder without task.py: what its files are for.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="JSON lines, one a result; runs/audit/<name>.jsonl if left out.")
    ] = None,
    only: Annotated[str | None, typer.Option(help="Entries whose name fits, such as 'level1_*'.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many entries.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as one JSON object on stdout.")] = False,
    device: Annotated[
        Literal["cpu", "cuda"] | None, typer.Option(help="Where to judge; judge.device if left out.")
    ] = None,
    config: Annotated[str | None, typer.Option("--config", help="Configuration file.")] = None,
    overrides: Annotated[list[str] | None, typer.Option("--set", help="Override a key. Repeatable.")] = None,
) -> None:
    """Judge a published collection: each entry's verdict, published and measured speedups side by side, a summary.

    Run again, it goes on where it was interrupted. Exit code 0: all were judged; 2: an error, or a judge that failed.
    """
    from rich.console import Console

    from cluster.audit import audit_entries, print_audit, summary_json
    from cluster.config import load_config
    from judge.audit_summary import summarise
    from judge.collection import read_collection
    from tasks.loader import load_task

    chosen = [*(overrides or []), *([f"judge.device={device}"] if device else [])]
    settings = load_config(config, chosen).judge
    entries = read_collection(collection, load_task(task) if task else None)
    entries = [entry for entry in entries if only is None or fnmatch(entry.name, only)][:limit]
    if not entries:
        raise ConfigError(f"{collection}: no entry's name fits --only {only}")
    path = out or Path("runs", "audit", f"{collection.resolve().stem}.jsonl")
    progress = Console(stderr=True, highlight=False)
    with stdout_for_result() as stdout:
        results = audit_entries(
            entries, settings, path, lambda line: progress.print(line, markup=False, soft_wrap=True)
        )
        summary = summarise(results)
        if as_json:
            stdout.write(summary_json(summary, path) + "\n")
        else:
            print_audit(Console(file=stdout, highlight=False), results, summary)
            stdout.write(f"results: {path}\n")
    if summary.outcomes.get("judge_error"):
        raise typer.Exit(2)
