"""The suite's hand-written kernels: exemplars of prompts, and the answers of supervised samples."""

from __future__ import annotations

import ast
from pathlib import Path

from tasks.loader import SUITE, suite_tasks
from tasks.types import ExpertKernel

QUALITIES = ("excellent", "good", "plain")


def expert_kernels(task_name: str, backend: str = "cpp") -> tuple[ExpertKernel, ...]:
    """The kernels beside a suite task's ``task.py``, the best first; none for a task from elsewhere.

    Files are called ``good.py`` for C++, ``cuda_good.py`` and ``triton_good.py`` for the others.
    """
    prefix = "" if backend == "cpp" else f"{backend}_"
    folders = [Path(task.path).parent for task in suite_tasks() if task.name == task_name and task.path]
    files = [(quality, folder / f"{prefix}{quality}.py") for folder in folders for quality in QUALITIES]
    return tuple(
        _kernel(task_name, quality, backend, file.read_text("utf-8")) for quality, file in files if file.is_file()
    )


def _kernel(task_name: str, quality: str, backend: str, text: str) -> ExpertKernel:
    """The module docstring is the analysis, the rest is the code."""
    tree = ast.parse(text)
    analysis = ast.get_docstring(tree)
    assert analysis, f"{task_name}/{quality}.py ({backend}) under {SUITE} begins with its performance analysis"
    code = "".join(text.splitlines(keepends=True)[tree.body[0].end_lineno :]).lstrip("\n")
    return ExpertKernel(
        task_name=task_name, quality=quality, backend=backend, code=code, analysis=" ".join(analysis.split())
    )
