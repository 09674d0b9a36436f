"""A Ray cluster of our own for each module that asks for it."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[None]:
    """Six logical CPUs: the fakes hardly use one."""
    import ray

    folder = tempfile.mkdtemp(prefix="wsa", dir="/tmp")  # short: Ray puts sockets below it
    ray.init(num_cpus=6, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=folder)
    yield
    ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)
