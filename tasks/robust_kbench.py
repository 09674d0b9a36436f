"""robust-kbench's task folders in KernelBench's form.

A folder there holds ``func_forward.py`` (``Model``, ``get_inputs(**settings)``) and ``config_forward.json`` with lists
of settings for the module and the inputs; ``config_backward.json`` has the settings for which the gradient is asked.
Facts read from the public sources of robust-kbench (``config_task.py``, ``kernel_task.py``, arXiv:2509.14279).
"""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from tasks.errors import TaskError
from tasks.loader import parse_task
from tasks.types import Task, Variant

FORWARD, BACKWARD = "forward", "backward"


def is_robust_kbench(folder: Path) -> bool:
    """Whether the folder is a task of robust-kbench."""
    return (folder / "func_forward.py").is_file()


def read_robust_kbench(folder: Path) -> list[Task]:
    """The folder's tasks: NAME, and NAME_backward when the gradient is asked for.

    The "single" settings are the default variant; of the "multi" ones, each other combination is a variant, and of
    three or more variants the last is held out. Settings given in both lists are joined as there: shared ones last.

    Raises TaskError for a file that is missing or cannot be used.
    """
    source_path = folder / "func_forward.py"
    tasks = []
    for direction in (FORWARD, BACKWARD):
        config_path = folder / f"config_{direction}.json"
        if direction == BACKWARD and not config_path.is_file():
            continue
        settings = _settings(config_path)
        source = _source(source_path, settings)
        task = parse_task(source, str(source_path))
        name = folder.resolve().name + ("_backward" if direction == BACKWARD else "")
        tasks.append(replace(task, name=name, variants=_variants(settings), backward=direction == BACKWARD))
    return tasks


def _settings(path: Path) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """(of the module, of the inputs), the default first, without repeats."""
    try:
        config = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise TaskError(f"{path}: cannot be read ({error}); robust-kbench keeps a task's settings there") from error
    found = []
    for kind in ("single", "multi"):
        lists = [_dicts(config, f"{kind}_{part}_configs", path) for part in ("init", "input", "shared")]
        for init, inputs, shared in product(*lists):
            pair = ({**init, **shared}, {**inputs, **shared})
            if pair not in found:
                found.append(pair)
    return found


def _dicts(config: object, key: str, path: Path) -> list[dict[str, Any]]:
    value = config.get(key) if isinstance(config, dict) else None
    if value is None:
        value = [{}]
    if not (isinstance(value, list) and value and all(isinstance(one, dict) for one in value)):
        raise TaskError(f"{path}: {key} is not a list of settings; robust-kbench has [{{...}}, ...] there")
    return value


def _variants(settings: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[Variant, ...]:
    made = [Variant(name="default", constants={})]
    for number, (init, inputs) in enumerate(settings[1:], start=1):
        held_out = number == len(settings) - 1 and len(settings) >= 3
        constants = {"INIT_SETTINGS": init, "INPUT_SETTINGS": inputs}
        made.append(Variant(name=f"settings{number}", constants=constants, held_out=held_out))
    return tuple(made)


def _source(path: Path, settings: list[tuple[dict[str, Any], dict[str, Any]]]) -> str:
    """The file with KernelBench's two functions added at its end: its own lines keep their numbers."""
    try:
        text = path.read_text()
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError) as error:
        raise TaskError(f"{path}: cannot be read as Python ({error}); check the file") from error
    arguments = []
    for name, value in _of_init(tree, path):
        if value is None and not all(name in init for init, _ in settings):
            raise TaskError(f"{path}: Model needs {name}, which config_*.json does not set; add it there")
        arguments.append(f'INIT_SETTINGS["{name}"]' if value is None else f'INIT_SETTINGS.get("{name}", {value})')
    lines = [
        text.rstrip("\n"),
        "",
        "",
        f"INIT_SETTINGS = {settings[0][0]!r}",
        f"INPUT_SETTINGS = {settings[0][1]!r}",
        "make_inputs = get_inputs",
        "",
        "",
        "def get_inputs():",
        "    return make_inputs(**INPUT_SETTINGS)",
        "",
        "",
        "def get_init_inputs():",
        f"    return [{', '.join(arguments)}]",
        "",
    ]
    return "\n".join(lines)


def _of_init(tree: ast.Module, path: Path) -> list[tuple[str, str | None]]:
    """The parameters of Model's __init__ with the text of their defaults."""
    model = next((n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == "Model"), None)
    if model is None:
        raise TaskError(f"{path}: no class Model at top level; robust-kbench's tasks have one")
    init = next((n for n in model.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if init is None:
        return []
    names = [argument.arg for argument in init.args.args[1:]]
    defaults: list[str | None] = [ast.unparse(value) for value in init.args.defaults]
    required: list[str | None] = [None] * (len(names) - len(defaults))
    return list(zip(names, required + defaults, strict=True))
