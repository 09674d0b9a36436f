"""Commands that start something long: train, serve, submit; and doctor, which says what would start here."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from cluster.arguments import config_of, split_config
from cluster.errors import ConfigError

ConfigArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[CONFIG] [section.key=value]...", help="A TOML file (the embedded one if left out)."),
]


def register_training(app: typer.Typer) -> None:
    """Add `train`, the first command that the help shows."""
    app.command()(train)


def register(app: typer.Typer) -> None:
    """Add the other commands of this file."""
    app.command()(serve)
    app.command()(submit)
    app.command()(doctor)


def train(
    arguments: ConfigArguments = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Start anew even where a run could be continued.")] = False,
    rollout_only: Annotated[
        bool, typer.Option("--rollout-only", help="Sample, judge and record; learn nothing.")
    ] = False,
    learn_only: Annotated[
        Path | None, typer.Option(help="Learn from a recorded rollouts.jsonl (or its run's folder); sample nothing.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option(help="The whole loop, with the answers and verdicts of a recorded run.")
    ] = None,
) -> None:
    """Run contrastive RL; an unfinished run of the same configuration is continued."""
    config = config_of(arguments or [])  # its mistakes are found before anything heavy is imported
    if (rollout_only, learn_only is not None, replay is not None).count(True) > 1:
        raise ConfigError("--rollout-only, --learn-only and --replay exclude each other: give one")

    from cluster.driver import Mode
    from cluster.driver import train as run_training

    mode = Mode(kind="rollout-only") if rollout_only else Mode()
    mode = Mode(kind="learn-only", recording=learn_only) if learn_only else mode
    mode = Mode(kind="replay", recording=replay) if replay else mode

    say = partial(print, flush=True)
    # Ray sets this in the processes of `ray job submit`, and deletes their working directory afterwards.
    if os.environ.get("RAY_JOB_CONFIG_JSON_ENV_VAR") and not Path(config.run.folder).is_absolute():
        say("warning: this job's working directory is deleted at its end: set run.folder to an absolute path")
    raise typer.Exit(run_training(config, fresh=fresh, say=say, mode=mode))


def serve(
    arguments: ConfigArguments = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port; serving.port if left out.")] = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on; serving.host if left out.")] = None,
) -> None:
    """Serve the optimizer, the policy and the judge over HTTP. Ctrl-C stops it."""
    config = config_of(arguments or [])

    from cluster.serve import serve_command

    wanted = {key: value for key, value in (("port", port), ("host", host)) if value is not None}
    serving = config.serving.model_copy(update=wanted)
    raise typer.Exit(serve_command(config.model_copy(update={"serving": serving})))


def submit(
    arguments: ConfigArguments = None,
    address: Annotated[
        str | None, typer.Option(help="The cluster's dashboard; RAY_API_SERVER_ADDRESS or http://127.0.0.1:8265.")
    ] = None,
    working_dir: Annotated[Path, typer.Option(help="Folder that travels to the cluster.")] = Path(),
    python: Annotated[
        str | None, typer.Option(help="Interpreter on the cluster; this one for a local cluster, else python.")
    ] = None,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Follow the job's log until its end.")] = True,
) -> None:
    """Run `warpsmith train` as a job on a Ray cluster, follow its log, and end with its exit code."""
    from cluster.submit import submit_training

    config, overrides = split_config(arguments or [])
    raise typer.Exit(
        submit_training(config, overrides, address=address, working_dir=working_dir, python=python, wait=wait)
    )


def doctor(
    arguments: ConfigArguments = None,
) -> None:
    """Say what this machine can run, and what is missing with its remedy. Exit code 1 when something needed is."""
    from cluster.doctor import examine, print_findings

    findings = examine(config_of(arguments or []))
    raise typer.Exit(print_findings(findings))
