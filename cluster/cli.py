"""The command line: `warpsmith COMMAND`, one function a command; what a command needs is imported inside it.

Exit codes: 0 fine, 1 the answer is no (a verdict other than correct, nothing faster found, something missing), 2 an
error that one line on stderr explains, 130 interrupted. WARPSMITH_DEBUG=1 shows tracebacks.
"""

from __future__ import annotations

import errno
import os
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from cluster import (
    commands_audit,
    commands_cluster,
    commands_data,
    commands_evaluate,
    commands_judge,
    commands_serving,
    commands_tasks,
)
from warpsmith import WarpsmithError, __version__

USAGE_ERROR, INTERRUPTED = 2, 130

app = typer.Typer(
    name="warpsmith",
    help="Train a language model to write faster kernels, judge kernels strictly, serve the optimizer.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"warpsmith {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options that belong to no command."""


commands_cluster.register_training(app)
commands_judge.register(app)
commands_tasks.register(commands_judge.tasks_app)
commands_audit.register(app)
commands_data.register(app)
commands_cluster.register(app)
commands_evaluate.register(app)
commands_serving.register(app)


def main() -> None:
    """Run the command line and exit with its code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code; every error ends as one line on stderr."""
    try:
        result = app(list(arguments) or ["--help"], standalone_mode=False, prog_name="warpsmith")
        code = result if isinstance(result, int) else 0
        if code == INTERRUPTED:  # how typer hands on Ctrl-C
            _say("interrupted; what was measured is kept")
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        _say("interrupted; what was measured is kept")
        return INTERRUPTED
    except WarpsmithError as error:
        _debug()
        _say(one_line(error))
        return USAGE_ERROR
    except TyperException as error:
        _say(_usage(error))
        return USAGE_ERROR
    except BrokenPipeError:  # `warpsmith tasks list | head -1`: the reader has what it wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 0
    except Exception as error:
        _say(_unexpected(error))
        return USAGE_ERROR


def one_line(error: BaseException) -> str:
    """The error's text without line breaks."""
    return " ".join(str(error).split()) or type(error).__name__


def _usage(error: TyperException) -> str:
    context: Any = getattr(error, "ctx", None)
    where = context.command_path if context else "warpsmith"
    return f"{one_line_text(error.format_message())} (see {where} --help)"


def one_line_text(text: str) -> str:
    return " ".join(text.split())


def _unexpected(error: Exception) -> str:
    """For what nobody foresaw: its type, its text, and where the traceback is."""
    _debug()
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        place = f" for {error.filename}" if error.filename else ""
        return f"no space left on the disk{place}: free some and run it again; what was measured is kept"
    text = one_line(error)[:300]
    with tempfile.NamedTemporaryFile("w", prefix="warpsmith-", suffix=".traceback", delete=False) as file:
        file.write("".join(traceback.format_exception(error)))
    return f"unexpected {type(error).__name__}: {text} (traceback in {file.name}; please report it)"


def _debug() -> None:
    if os.environ.get("WARPSMITH_DEBUG"):
        traceback.print_exc()


def _say(line: str) -> None:
    print(f"warpsmith: {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
