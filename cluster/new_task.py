"""`warpsmith tasks new`: a person's module or function becomes a task that is fit to be judged."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cluster.arguments import read_source
from cluster.errors import ConfigError
from tasks.drafts import draft_task
from tasks.loader import parse_task

if TYPE_CHECKING:
    from judge.settings import JudgeSettings


def new_task(
    path: Path, out: Path, settings: JudgeSettings, say: TextIO, *, target: str | None, admission: bool
) -> int:
    """Write the task file, judge whether it is fit, and say so; the exit code is that of `tasks check`.

    0: fit; 1: it has a fault, each named in one line (the file is written all the same); 2: the judge itself failed.

    Raises TaskError: nothing of the file can be made a task. ConfigError: ``out`` exists, or cannot be written.
    """
    from cluster.commands_data import write_text

    draft = draft_task(read_source(path), str(path), target)
    task = parse_task(draft.source, str(out))
    if out.exists() and out.read_text("utf-8") != draft.source:
        raise ConfigError(f"{out}: exists; name another file with --out")
    write_text(out, draft.source)
    say.write(f"{out}: the task {task.name}, for {draft.target}\n")
    for note in draft.notes:
        say.write(f"  note: {note}\n")
    if not admission:
        return 0
    from cluster.task_checks import check_tasks

    code = check_tasks([task], settings, say, as_json=False)
    if code == 0:
        say.write(f"fit to be judged: warpsmith optimize {out}\n")
    elif code == 1:
        say.write("not fit to be judged yet: mend what is named above and run this again\n")
    return code
