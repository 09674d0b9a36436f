"""A training run that is broken many times ends as the one that nobody broke."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks" / "loop"))

from breaking import WEIGHTS, chaos, differences, schedule

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


def test_a_difference_is_seen() -> None:
    whole = {
        "records": {"a": ("gelu", "g", 1, 1, "win", 1.5, "code"), "b": ("gelu", "g", 1, 1, "correct", 1.0, "x")},
        "updates": [("contrastive", 1, "h1"), ("contrastive", 2, "h2")],
        "chain": "c",
        "finished": True,
    }
    assert differences(whole, whole) == []
    lost = whole | {"records": {"a": whole["records"]["a"]}}
    assert differences(whole, lost) == ["1 records lost"]
    doubled = whole | {"updates": [*whole["updates"], ("contrastive", 2, "h2")]}
    assert differences(whole, doubled) == ["updates counted twice: [('contrastive', 2)]", "batches differ"]
    assert differences(whole, whole | {"chain": "d", "finished": False}) == [
        "the learner ended elsewhere",
        "not finished",
    ]


def test_every_kind_of_fault_is_among_a_hundred() -> None:
    faults = schedule(100, random.Random(1))
    assert {kind: faults.count(kind) for kind in WEIGHTS} == WEIGHTS


def test_after_faults_of_each_kind_the_run_has_the_same_records_batches_and_weights(tmp_path: Path) -> None:
    faults = [kind for kind in WEIGHTS if kind != "archive_slow"]
    report = chaos(tmp_path, faults, seed=1, nodes=2, pause=(0.2, 0.8))
    assert report["wrong"] == []
    # Without root there is no disk to fill.
    assert set(report["recovery"]) >= set(faults) - {"disk_full"}
    assert report["left"] == 0
