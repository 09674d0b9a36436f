from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

# A shell that starts `make test` in the background has SIGINT ignored, and so have the processes that tests start: the
# tests of Ctrl-C would wait for nothing.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _gpu_missing() -> str:
    """Why tests marked ``gpu`` cannot run here; empty when they can. Nothing here makes a CUDA context."""
    try:
        import cupy
    except ImportError:
        return "CuPy is not installed"
    try:
        return "" if cupy.cuda.runtime.getDeviceCount() else "no CUDA device"
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"no CUDA device: {error}"


# Files that take minutes, the longest first. The workers of `make test` are handed groups in this order, so that none
# of them begins one of these when the others have nothing left to do.
LONGEST = (
    "test_cluster_train",
    "test_learner_engine",
    "test_tasks_suite_cuda",
    "test_redteam",
    "test_cluster_replay",
    "test_tasks_suite",
    "test_serving_service",
    "test_procedural_cuda",
)
# Rooms whose tests start Ray: one worker runs them all, since two clusters on two cores starve each other's agents.
WITH_RAY = ("actors", "chaos", "cluster", "serving")
# Their longer files that do not: the judge and the learner in the test's own process, or a front over scripted parts.
WITHOUT_RAY = (
    "test_actors_endpoint",
    "test_cluster_audit",
    "test_cluster_cli",
    "test_cluster_comeback",
    "test_cluster_rejection",
    "test_cluster_replay",
    "test_cluster_sft_only",
    "test_serving_front",
    "test_serving_jobs",
    "test_serving_page",
)


def group_of(path: Path) -> str:
    """What one worker runs from beginning to end: a file, or all that start Ray."""
    with_ray = path.parent.name in WITH_RAY and path.stem not in WITHOUT_RAY
    return "ray" if with_ray else path.stem


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Groups by file name: `--dist loadgroup` of xdist 3.8 writes its groups into a name that pytest 9.2 does not read,
    so that every test was a group of its own, and its file's servers were started on each worker."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(Path(nodeid.partition("::")[0]))

    return Groups(config, log) if config.getvalue("dist") == "loadscope" else None


def _in_line(item: pytest.Item) -> int:
    return LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_in_line)  # stable: otherwise as they were
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and (reason := _gpu_missing()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=f"needs a GPU: {reason}"))
