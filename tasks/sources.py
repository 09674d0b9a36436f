"""Where tasks come from: the suite, files, other projects' folders, and packages.

    load_tasks("suite")                    # all bundled tasks
    load_tasks("softmax")                  # one of them
    load_tasks("my_op.py")                 # a file in KernelBench's form
    load_tasks("KernelBench/level1")       # its folders, unchanged
    load_tasks("robust-kbench/tasks")      # its folders: one task forward, one backward, several settings
    load_tasks("acme-ops")                 # an entry point of the group "warpsmith.tasks" of an installed package
    load_tasks("procedural:test:200")      # 200 generated tasks of a split; a seed may follow

Nothing of a task runs here; an entry point's own code does, since the person installed it.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from tasks.errors import TaskError
from tasks.loader import load_task, suite_tasks
from tasks.robust_kbench import is_robust_kbench, read_robust_kbench
from tasks.types import Task

GROUP = "warpsmith.tasks"
SUITE_NAME = "suite"


def load_tasks(source: str) -> list[Task]:
    """The tasks that a source names, in the order of their paths.

    In a folder, Python files that are no tasks are passed over; one task file alone must be right.

    Raises TaskError in one line when there is none, or one cannot be used.
    """
    if source == SUITE_NAME:
        return list(suite_tasks())
    if source.partition(":")[0] == "procedural":
        from tasks.procedural.generate import procedural_tasks

        return procedural_tasks(source)
    path = Path(source)
    if path.is_dir():
        return _in_folder(path)
    if not path.exists() and (plugin := _plugin(source)) is not None:
        return _of_plugin(plugin)
    return [load_task(source)]


def _in_folder(folder: Path) -> list[Task]:
    if (folder / "task.py").is_file():
        return [load_task(folder)]
    found: list[Task] = []
    if is_robust_kbench(folder):
        return read_robust_kbench(folder)
    other = sorted(path.parent for path in folder.rglob("func_forward.py"))
    for inner in other:
        found += read_robust_kbench(inner)
    for path in sorted(folder.rglob("*.py")):
        if path.parent in other:
            continue
        try:
            found.append(load_task(path))
        except TaskError:
            continue
    if not found:
        raise TaskError(f"{folder}: the folder holds no task file; a task has Model, get_inputs and get_init_inputs")
    return found


def _plugin(name: str) -> EntryPoint | None:
    return next(iter(entry_points(group=GROUP, name=name)), None)


def _of_plugin(plugin: EntryPoint) -> list[Task]:
    """What an entry point gives: a function without arguments (or its result) of Tasks and paths of task files."""
    package = plugin.dist.name if plugin.dist else plugin.value
    try:
        value = plugin.load()
        given = value() if callable(value) else value
    except Exception as error:  # someone else's code: whatever it raises is named, with the package
        raise TaskError(f"{plugin.name}: the task package {package} failed: {error!r}; mend or remove it") from error
    if not isinstance(given, Iterable) or isinstance(given, str):
        raise TaskError(f"{plugin.name}: the task package {package} gives {type(given).__name__}; it must give tasks")
    found: list[Task] = []
    for one in given:
        if isinstance(one, Task):
            found.append(one)
        elif isinstance(one, str | Path):
            found += _in_folder(Path(one)) if Path(one).is_dir() else [load_task(Path(one))]
        else:
            raise TaskError(f"{plugin.name}: {type(one).__name__} in the task package {package}; give Task or a path")
    return found
