"""How `make test` spreads tests over its workers."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def only_worker(request: pytest.FixtureRequest, worker_id: str) -> str:
    """A second worker that runs tests of this file finds the file there."""
    run = getattr(request.config, "workerinput", {}).get("testrunuid", "")
    if run:
        with (Path(tempfile.gettempdir()) / f"warpsmith-spread-{run}").open("x") as file:
            request.addfinalizer(lambda: Path(file.name).unlink())
    return worker_id


@pytest.mark.parametrize("number", range(16))
def test_a_files_tests_stay_on_one_worker(only_worker: str, number: int) -> None:
    assert only_worker
