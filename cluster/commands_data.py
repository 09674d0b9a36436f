"""Commands about what was measured and how it was asked for: export, report, rollout, config."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from cluster import commands_archive
from cluster.arguments import config_of, find_record, open_archive, run_folder
from cluster.commands_archive import WhereOption, record_line
from cluster.errors import ConfigError

if TYPE_CHECKING:
    from archive.types import Record

ConfigArguments = Annotated[
    list[str] | None, typer.Argument(metavar="[FILE] [section.key=value]...", help="The embedded one if left out.")
]

rollout_app = typer.Typer(help="What the policy was asked and what it answered: show.")
config_app = typer.Typer(help="The configuration: check, show.")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    commands_archive.register(app)
    app.command()(export)
    app.command()(report)
    app.add_typer(rollout_app, name="rollout")
    app.add_typer(config_app, name="config")


def export(
    record: Annotated[str, typer.Argument(metavar="RECORD", help="A record's id, or the beginning of it.")],
    where: WhereOption = None,
    out: Annotated[Path | None, typer.Option(help="File to write; stdout if left out.")] = None,
) -> None:
    """Write a record's kernel as a stand-alone file that needs torch and a compiler only."""
    with open_archive(where) as archive:
        found = find_record(archive, record)

    from archive.standalone import export_candidate
    from tasks.loader import suite_tasks

    task = next((task for task in suite_tasks() if task.task_id == found.task_id), None)
    text = export_candidate(found, task)
    if out is None:
        typer.echo(text, nl=False)
        return
    write_text(out, text)
    typer.echo(f"written to {out}", err=True)


def report(
    run: Annotated[str | None, typer.Argument(help="A run's folder or name; the newest if left out.")] = None,
) -> None:
    """Write a run's report.html anew from what is on disk, and print its table."""
    from cluster.report import summary_table, write_report

    folder = run_folder(run)
    if not any((folder / name).exists() for name in ("config.json", "archive.db", "metrics.jsonl")):
        raise ConfigError(f"{folder}: not the folder of a run: it has no config.json, archive.db or metrics.jsonl")
    path = write_report(folder)
    typer.echo(summary_table(folder))
    typer.echo(f"report: {path}")


@rollout_app.command("show")
def rollout_show(
    run: Annotated[str, typer.Argument(help="A run's folder or name.")],
    step: Annotated[int, typer.Argument(help="The training step, from 1.")],
    full: Annotated[bool, typer.Option("--full", help="Whole answers, not their beginnings.")] = False,
    stage: Annotated[
        Literal["contrastive", "self_supervised", "sft"], typer.Option(help="Whose steps or rounds are counted.")
    ] = "contrastive",
) -> None:
    """The groups of a step: the prompt, and its answers side by side with verdicts, rewards and advantages."""
    from cluster.listings import visible
    from cluster.recording import ROLLOUTS, read_recording
    from cluster.rollout_view import show_groups

    if (run_folder(run) / ROLLOUTS).is_file():
        groups_of_step = read_recording(run_folder(run)).step_groups(stage, step)
        if not groups_of_step:
            raise ConfigError(f"{run}: nothing recorded for {stage} step {step}")
        for line in show_groups(groups_of_step, full=full):
            typer.echo(line)
        return
    with open_archive(run) as archive:
        records = archive.records(step=step)
    if not records:
        raise ConfigError(f"{run}: nothing recorded for step {step}")
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.group_id or "", []).append(record)
    for group_id, members in groups.items():
        first = members[0]
        typer.echo(f"{group_id or 'no group'}  {first.task_name}  {first.operator}  weights {first.policy_version}")
        for parent in first.parents:
            typer.echo(f"  exemplar {parent}")
        for record in members:
            typer.echo(f"  {record_line(record)}")
            # An answer may hold anything, a terminal's control characters too.
            answer = visible(record.completion if full else _beginning(record.completion))
            typer.echo("\n".join(f"    | {line}" for line in answer.splitlines()))


@config_app.command("check")
def config_check(arguments: ConfigArguments = None) -> None:
    """Say whether a configuration can be used; its first mistake is one line, exit code 2."""
    given = arguments or []
    config_of(given)
    typer.echo(f"{given[0] if given else 'the embedded configuration'}: good")


@config_app.command("show")
def config_show(
    arguments: ConfigArguments = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, the form that lies beside each run.")] = False,
) -> None:
    """Every key with its value, as TOML that can be edited and used."""
    config = config_of(arguments or [])
    if as_json:
        typer.echo(config.model_dump_json(indent=2))
        return
    for line in toml_lines(config.model_dump(mode="json")):
        typer.echo(line)


def toml_lines(values: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted `key = value` lines; TOML has no null, so an unset key is a comment."""
    for key, value in values.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict):
            yield from toml_lines(value, f"{name}.") if value else [f"{name} = {{}}"]
        elif value is None:
            yield f"# {name} is not set"
        else:
            yield f"{name} = {_toml_value(value)}"


def _toml_value(value: Any) -> str:
    """JSON, whose numbers, texts and lists TOML reads too; objects become inline tables, without what is not set."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {_toml_value(v)}" for k, v in value.items() if v is not None) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml_value(one) for one in value) + "]"
    return json.dumps(value)


def write_text(path: Path, text: str) -> None:
    """Write a result file; its folder is made. Raises ConfigError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _beginning(text: str, lines: int = 6) -> str:
    kept = text.strip().splitlines()
    more = len(kept) - lines
    return "\n".join([*kept[:lines], *([f"... {more} more lines (--full)"] if more > 0 else [])])
