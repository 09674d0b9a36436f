"""Commands about kernels: judge, optimize, tasks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cluster.arguments import read_source, stdout_for_result

if TYPE_CHECKING:
    from rich.console import Console

    from judge.settings import JudgeSettings
    from judge.types import Verdict

ConfigOption = Annotated[str | None, typer.Option("--config", help="Configuration file; the embedded one if left out.")]
SetOption = Annotated[list[str] | None, typer.Option("--set", help="Override a key: --set judge.pairs=5. Repeatable.")]
TaskArgument = Annotated[
    str, typer.Argument(metavar="TASK", help="A suite name, a task file, or a folder with task.py.")
]

tasks_app = typer.Typer(help="The tasks: list, show, check, new, generate, corpus, decontaminate.")


def register(app: typer.Typer) -> None:
    """Add these commands to the command line."""
    app.command()(judge)
    app.command()(optimize)
    app.add_typer(tasks_app, name="tasks")


def judge(
    task: TaskArgument,
    candidate: Annotated[Path, typer.Argument(metavar="CANDIDATE", help="A Python file that defines ModelNew.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    device: Annotated[
        Literal["cpu", "cuda"] | None,
        typer.Option(help="Where to judge; judge.device if left out."),
    ] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Judge a candidate for a task: is it right, and how much faster is it?

    Exit code 0: win or correct; 1: any other verdict; 2: an error of use, or of the judge.
    """
    from judge.types import Status

    with stdout_for_result() as out:
        chosen = [*(overrides or []), *([f"judge.device={device}"] if device else [])]
        verdict = _judge_once(task, read_source(candidate), config, chosen)
        if as_json:
            out.write(verdict.model_dump_json() + "\n")
        else:
            from rich.console import Console

            _print_verdict(Console(file=out, highlight=False), verdict, str(candidate))
    if verdict.status is Status.JUDGE_ERROR:
        raise typer.Exit(2)
    raise typer.Exit(0 if verdict.is_correct else 1)


def optimize(
    target: Annotated[
        str, typer.Argument(metavar="TARGET", help="A task file (any PyTorch op), a suite name, or a folder of tasks.")
    ],
    model: Annotated[
        list[str] | None,
        typer.Option(help='"local" (the default), "none", openai:NAME, or a Hugging Face folder. Repeatable.'),
    ] = None,
    base_url: Annotated[str, typer.Option(help="Endpoint of the openai: models.")] = "https://api.openai.com/v1",
    api_key_env: Annotated[str, typer.Option(help="Environment variable that holds their key.")] = "OPENAI_API_KEY",
    price: Annotated[
        list[str] | None, typer.Option(help="[NAME=]IN/OUT: USD for a million tokens. Repeatable.")
    ] = None,
    max_candidates: Annotated[int, typer.Option(min=1, help="Most candidates to ask for and judge.")] = 32,
    budget_minutes: Annotated[float | None, typer.Option(min=0.01, help="Stop after so long.")] = None,
    budget_usd: Annotated[float | None, typer.Option(min=0, help="Ask no model for more than this.")] = None,
    preset: Annotated[str | None, typer.Option(help="How to search: default, ai-cuda-engineer, cuda-l1, ...")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the last search of this task.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the best kernel; <task>_fast.py if left out.")
    ] = None,
    archive: Annotated[str | None, typer.Option(help="Database file or URL; runs/optimize/archive.db.")] = None,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Look for a faster kernel and write the best verified one as a stand-alone file, with a one-page report.

    Exit code 0: one was verified faster; 1: none was; 2: an error. Ctrl-C keeps everything; --resume goes on.
    """
    from cluster.arguments import preset_overrides
    from cluster.config import load_config
    from cluster.optimize import Order, optimize_command
    from tasks.sources import load_tasks

    order = Order(
        models=tuple(model or ["local"]),
        base_url=base_url,
        api_key_env=api_key_env,
        prices=tuple(price or ()),
        max_candidates=max_candidates,
        budget_usd=budget_usd,
        budget_seconds=budget_minutes * 60 if budget_minutes else None,
        resume=resume,
        out=out,
        archive_url=archive,
    )
    chosen = load_config(config, [*preset_overrides(preset), *(overrides or [])])
    raise typer.Exit(optimize_command(load_tasks(target), chosen, order))


@tasks_app.command("list")
def tasks_list(
    source: Annotated[str, typer.Argument(metavar="[SOURCE]", help="A folder, a task package, ...")] = "suite",
) -> None:
    """The bundled tasks, or those of a folder (KernelBench's, robust-kbench's, your own) or an installed package."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    from tasks.experts import expert_kernels
    from tasks.sources import load_tasks

    table = Table(box=box.SIMPLE_HEAD)
    for column in ("task", "level", "variants", "expert kernels"):
        table.add_column(column)
    for task in load_tasks(source):
        variants = ", ".join(v.name + (" (held out)" if v.held_out else "") for v in task.variants)
        experts = ", ".join(kernel.quality for kernel in expert_kernels(task.name))
        table.add_row(task.name, str(task.level), variants, experts)
    Console(highlight=False).print(table)


@tasks_app.command("show")
def tasks_show(task: TaskArgument) -> None:
    """A task: its facts, then its file."""
    from rich.console import Console
    from rich.syntax import Syntax

    from tasks.loader import load_task

    loaded = load_task(task)
    console = Console(highlight=False)
    console.print(f"{loaded.name}  level {loaded.level}  id {loaded.task_id}  {loaded.where}", soft_wrap=True)
    for variant in loaded.variants:
        constants = ", ".join(f"{key}={value!r}" for key, value in variant.constants.items()) or "as the file stands"
        note = "  held out: verified, never shown" if variant.held_out else ""
        console.print(f"  {variant.name}: {constants}{note}", markup=False, soft_wrap=True)
    if console.is_terminal:
        console.print(Syntax(loaded.source, "python"))
    else:
        typer.echo(loaded.source)


@tasks_app.command("check")
def tasks_check(
    tasks: Annotated[list[str] | None, typer.Argument(metavar="[TASK]...", help="The whole suite if left out.")] = None,
    suite: Annotated[bool, typer.Option("--suite", help="The whole suite, beside the tasks named.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Is a task fit to be judged: its reference passes, doing nothing does not, its expert kernels are right?

    Exit code 0: all are; 1: a task or a kernel has a fault, named with the reason; 2: an error of use, or of the judge.
    """
    from cluster.config import load_config
    from cluster.task_checks import check_tasks
    from tasks.loader import suite_tasks
    from tasks.sources import load_tasks

    settings = load_config(config, overrides or []).judge
    chosen = [task for name in tasks or [] for task in load_tasks(name)]
    if suite or not tasks:
        chosen += [task for task in suite_tasks() if task.task_id not in {one.task_id for one in chosen}]
    with stdout_for_result() as out:
        code = check_tasks(chosen, settings, out, as_json=as_json)
    raise typer.Exit(code)


def _judge_once(task: str, code: str, config: str | None, overrides: list[str] | None) -> Verdict:
    from cluster.config import load_config
    from tasks.loader import load_task

    settings: JudgeSettings = load_config(config, overrides or []).judge
    loaded = load_task(task)

    from judge.api import judge as judge_candidate
    from judge.types import Candidate

    return judge_candidate(loaded, Candidate(code=code), settings)


def _print_verdict(console: Console, verdict: Verdict, name: str) -> None:
    """The verdict for a reader: the answer first, then what it rests on."""
    from cluster.listings import visible

    colour = {"win": "bold green", "correct": "yellow"}.get(verdict.status, "bold red")
    console.print(f"[{colour}]{verdict.status}[/]  {_plain(name)}", soft_wrap=True)
    if verdict.message and verdict.speedup is None:
        console.print(f"  {visible(verdict.message)}", markup=False, soft_wrap=True)
    if verdict.speedup is not None:
        console.print(
            f"  speedup {verdict.speedup:.2f}x, 99% interval {verdict.speedup_low or 0:.2f} to "
            f"{verdict.speedup_high or 0:.2f}, against {verdict.best_baseline}"
        )
    times = {"candidate": verdict.candidate_ms, **verdict.baselines.model_dump()}
    measured = ", ".join(f"{kind} {value:.4g} ms" for kind, value in times.items() if value is not None)
    seconds = ", ".join(f"{phase} {value:.2f}" for phase, value in verdict.phase_seconds.items())
    error = "" if verdict.max_error is None else f"{verdict.max_error:.3g}, {verdict.tolerance or 0:.3g} allowed"
    facts = {
        "median call": measured,
        "largest error": error,
        "flags": ", ".join(verdict.flags),
        "isolation": ", ".join(verdict.sandbox),
        "seconds": seconds,
    }
    for label, text in facts.items():
        if text:
            console.print(f"  {label}: {text}", markup=False, soft_wrap=True)


def _plain(text: str) -> str:
    from rich.markup import escape

    return escape(text)
