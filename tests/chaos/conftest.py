"""Simulated nodes: several raylets on this machine, each with CPUs that it only claims to have."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest


@pytest.fixture
def nodes() -> Iterator[Any]:
    """A cluster whose head has one CPU; ``add_node(num_cpus=2)`` and ``remove_node(node)`` change it."""
    import ray
    from ray.cluster_utils import Cluster

    folder = tempfile.mkdtemp(prefix="wsc", dir="/tmp")  # short: Ray puts sockets below it
    head = {"num_cpus": 1, "include_dashboard": False, "_system_config": {"health_check_period_ms": 1000}}
    cluster = Cluster(initialize_head=True, head_node_args=head | {"temp_dir": folder})
    ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def closing() -> Iterator[Callable[[Any], Any]]:
    """``closing(pool)`` gives the pool back and closes it at the end of the test, before its cluster goes."""
    opened: list[Any] = []

    def keep(thing: Any) -> Any:
        opened.append(thing)
        return thing

    yield keep
    for thing in reversed(opened):
        thing.close()
