"""200 steps with real actors and a learning rate of 0: nothing grows, and the engine's mismatch stays as it was."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from cluster.config import load_config
from cluster.driver import train

pytestmark = [pytest.mark.nightly, pytest.mark.slow, pytest.mark.timeout(1500)]

STEPS, WARM = 200, 40
OVERRIDES = [
    "model.path=tiny-random",
    'tasks.names=["gelu"]',
    f"run.steps={STEPS}",
    "run.tasks_per_step=1",
    "run.sft_epochs=0",
    "run.min_free_disk_gb=0",
    "rollout.group_size=2",
    "rollout.max_tokens=8",
    "evaluators.actors=1",
    "judge.pairs=3",
    "judge.calls=4",
    "learner.lora.rank=4",
    "learner.lr=0",
    "tracking.wandb=off",
]


def plasma() -> int:
    """Objects in Ray's store."""
    from ray._private.internal_api import memory_summary

    words = memory_summary(stats_only=True).split()
    return int(words[words.index("objects,") - 1]) if "objects," in words else 0


def test_memory_object_store_and_mismatch_stay_flat_over_200_steps_at_a_learning_rate_of_zero(tmp_path: Path) -> None:
    seen: list[tuple[int, float, int]] = []

    def say(line: str) -> None:
        if "mean reward" in line:
            done = len((tmp_path / "cpu" / "metrics.jsonl").read_text().splitlines())
            if done % 10 == 0:
                gc.collect()
                seen.append((done, psutil.Process().memory_info().rss / 2**20, plasma()))

    train(load_config(None, [f"run.folder={tmp_path}", *OVERRIDES]), say=say)
    lines: list[dict[str, Any]] = [
        json.loads(line) for line in (tmp_path / "cpu" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["step"] for line in lines] == list(range(1, STEPS + 1))
    warm = [(rss, objects) for step, rss, objects in seen if step >= WARM]
    story = "; ".join(f"step {step}: {rss:.0f} MiB, {objects} objects" for step, rss, objects in seen)
    # SQLite's and Python's own caches may still fill; a leak of one step's answers would be ten times that.
    assert max(rss for rss, _ in warm[-3:]) - min(rss for rss, _ in warm[:3]) < 16, story
    assert max(objects for _, objects in warm[-3:]) <= max(objects for _, objects in warm[:3]), story
    # With a learning rate of 0 the weights stay, so engine and learner must agree as well at the end as at the
    # beginning, sync after sync: nothing stale, nothing that adds up.
    assert {line["learner"]["lr"] for line in lines} == {0.0}
    assert lines[-1]["policy_version"] == STEPS
    differences = [line["probe_difference"] for line in lines]
    assert max(differences) - min(differences) < 1e-3, differences
    mismatch = [line["learner"]["mismatch_mean"] for line in lines]
    assert abs(sum(mismatch[-50:]) - sum(mismatch[:50])) / 50 < 0.02, mismatch
