"""warpsmith's public face: what a user or a candidate imports.

Nothing heavy is imported here; each name loads its room on first use.

Errors: every error that warpsmith raises on purpose is a :class:`WarpsmithError`; its text is one line that says
what is wrong, where, and what to do. Failures of candidates are never exceptions: they are verdicts.

    WarpsmithError
    ├── tasks.errors.TaskError          a task file cannot be used
    ├── judge.errors.JudgeError         the judge itself failed (never the candidate)
    ├── archive.errors.ArchiveError     the archive cannot be read or written
    ├── search.errors.SearchError       an operator cannot build its prompt
    ├── learner.errors.LearnerError     weights, checkpoints or batches are unusable
    ├── actors.errors.ActorError        a pool lost its last member, a deadline passed
    └── cluster.errors.ConfigError      the configuration is wrong
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"


class WarpsmithError(Exception):
    """Root of the tree above. ``str(error)`` is one line for the user; the command line exits with 2."""


_HOMES = {
    "load_cpp": "judge.load_cpp",
    "load_cuda": "judge.load_cuda",
    "Candidate": "judge.types",
    "Status": "judge.types",
    "Verdict": "judge.types",
    "judge": "judge.api",
    "Task": "tasks.types",
    "load_task": "tasks.loader",
}

__all__ = ["WarpsmithError", "__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'warpsmith' has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)
