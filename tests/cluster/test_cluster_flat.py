"""200 steps with real actors: the driver's memory and Ray's object store end as they were after the first ones."""

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
    "tracking.wandb=off",
]


def plasma() -> int:
    """Objects in Ray's store."""
    from ray._private.internal_api import memory_summary

    words = memory_summary(stats_only=True).split()
    return int(words[words.index("objects,") - 1]) if "objects," in words else 0


def test_the_drivers_memory_and_the_object_store_stay_flat_over_200_steps(tmp_path: Path) -> None:
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
    # The engine and the learner agree as well at the end as at the beginning: nothing drifts.
    differences = [line["probe_difference"] for line in lines]
    assert max(differences[-20:]) < max(differences[:20]) + 0.02, differences
