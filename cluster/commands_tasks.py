"""Commands about making tasks: tasks generate, corpus, decontaminate, new."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from cluster.commands_judge import ConfigOption, SetOption

SplitOption = Annotated[
    Literal["train", "validation", "test", "longer"],
    typer.Option(help="By composition of operators; longer: graphs of more operators than any in train."),
]
FamilyOption = Annotated[str | None, typer.Option(help="Only this family, such as row_norm.")]
SeedOption = Annotated[int, typer.Option(min=0, help="The first seed; the same seed gives the same tasks.")]


def register(tasks_app: typer.Typer) -> None:
    """Add these commands to `warpsmith tasks`."""
    tasks_app.command("generate")(generate)
    tasks_app.command("corpus")(corpus)
    tasks_app.command("decontaminate")(decontaminate)
    tasks_app.command("new")(new)


def generate(
    out: Annotated[Path, typer.Argument(metavar="FOLDER", help="Where the task files go.")],
    number: Annotated[int, typer.Option("--tasks", min=1, help="How many.")] = 10,
    split: SplitOption = "train",
    seed: SeedOption = 0,
    family: FamilyOption = None,
    kernels: Annotated[
        Literal["none", "cpp", "cuda"], typer.Option(help="Write all correct kernels beside each task.")
    ] = "none",
) -> None:
    """Draw distinct tasks, each a file in KernelBench's form, and correct kernels for them."""
    import itertools

    from cluster.commands_data import write_text
    from tasks.procedural.generate import tasks_of

    count = 0
    for task in itertools.islice(tasks_of(split, seed, family), number):
        folder = out / task.task.name
        write_text(folder / "task.py", task.source)
        for place, kernel in enumerate(task.kernels(kernels) if kernels != "none" else ()):
            schedule = ", ".join(f"{name} {value}" for name, value in kernel.schedule)
            write_text(folder / f"{kernels}_{place:02d}.py", f'"""{schedule}: {kernel.note}."""\n\n{kernel.code}')
            count += 1
    typer.echo(f"{number} tasks of the split {split}" + (f" with {count} kernels" if count else "") + f" in {out}")


def corpus(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="JSONL file for sft.corpus; an unfinished one goes on.")],
    backend: Annotated[Literal["cpp", "cuda"], typer.Option(help="Language of the kernels.")] = "cpp",
    number: Annotated[int, typer.Option("--tasks", min=1, help="How many tasks.")] = 100,
    per_task: Annotated[int, typer.Option(min=1, help="Most samples of a task.")] = 4,
    split: SplitOption = "train",
    seed: SeedOption = 0,
    family: FamilyOption = None,
    kinds: Annotated[str, typer.Option(help="Of plain, contrast and repair, with commas.")] = "plain,contrast,repair",
    timings: Annotated[
        Path | None, typer.Option(help="CUDA: JSON lines with seed, schedule, correct and microseconds, from a GPU.")
    ] = None,
    judge: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the kernels that the judge judges as well.")
    ] = 0.0,
    most_tokens: Annotated[int, typer.Option(min=256, help="Of a prompt and its answer together.")] = 2048,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Write supervised samples of generated tasks: prompts as training asks, answers by verified kernels.

    Exit code 0: written; 1: a generated kernel was wrong, which is a bug; 2: an error of use. Ctrl-C keeps what was
    done, and the same command goes on.
    """
    from cluster.config import load_config
    from cluster.generated_corpus import Order, build_corpus

    order = Order(
        out=out,
        backend=backend,
        tasks=number,
        per_task=per_task,
        split=split,
        seed=seed,
        family=family,
        kinds=tuple(dict.fromkeys(kinds.split(","))),
        timings=timings,
        judge_share=judge,
        most_tokens=most_tokens,
    )
    raise typer.Exit(build_corpus(order, load_config(config, overrides or []), lambda text: typer.echo(text)))


def decontaminate(
    train: Annotated[
        str, typer.Argument(metavar="TRAIN", help="Tasks as `tasks list` names them, or a corpus of generated tasks.")
    ] = "procedural:train:2000",
    test: Annotated[str, typer.Argument(metavar="TEST", help="Tasks that must not be in it.")] = "suite",
    trace: Annotated[
        bool, typer.Option("--trace", help="Compare operator graphs of other people's files too: their code is run.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print exactly one JSON object on stdout.")] = False,
) -> None:
    """Which tasks of TEST are in TRAIN as well: word for word, with the same operators, or in a similar text?

    Exit code 0: none, or similar texts only; 1: some are; 2: an error of use.
    """
    from cluster.arguments import stdout_for_result
    from cluster.decontamination import compare_sets

    with stdout_for_result() as out:
        code = compare_sets(train, test, out, trace=trace, as_json=as_json)
    raise typer.Exit(code)


def new(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="Python with an nn.Module or a function, and sample_inputs = [...].")
    ],
    out: Annotated[Path | None, typer.Option(help="The task file to write; FILE_task.py if left out.")] = None,
    target: Annotated[str | None, typer.Option(help="The module or function, where the file has several.")] = None,
    admission: Annotated[
        bool, typer.Option("--admit/--no-admit", help="Judge whether the task can be judged at all.")
    ] = True,
    config: ConfigOption = None,
    overrides: SetOption = None,
) -> None:
    """Make a task of your own operation, and find out whether it is fit to be judged.

    Exit code 0: it is; 1: it has a fault, named in one line; 2: an error of use, or of the judge.
    """
    from cluster.arguments import stdout_for_result
    from cluster.config import load_config
    from cluster.new_task import new_task

    settings = load_config(config, overrides or []).judge
    place = out or source.with_name(f"{source.stem}_task.py")
    with stdout_for_result() as say:
        code = new_task(source, place, settings, say, target=target, admission=admission)
    raise typer.Exit(code)
