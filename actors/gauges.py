"""Numbers for Ray's dashboard and Prometheus, through ray.util.metrics; Ray puts ``ray_`` before each name."""

from __future__ import annotations

import time
from typing import Any

POOL_GAUGES = {
    "warpsmith_pool_members": "Members that are ready for work.",
    "warpsmith_pool_wanted": "Members that the pool wants.",
    "warpsmith_pool_busy": "Calls that members have.",
    "warpsmith_pool_waiting": "Works that no member has.",
}
POOL_COUNTERS = {
    "warpsmith_pool_results": "Finished works, failures included.",
    "warpsmith_pool_lost": "Members that died or passed a deadline.",
    "warpsmith_pool_requeued": "Works handed out again after their member was lost.",
}
TRAIN_GAUGES = {
    "warpsmith_train_step": "Updates done, by stage.",
    "warpsmith_train_reward": "Mean raw reward of the last step.",
    "warpsmith_train_policy_version": "Version of the learner's weights.",
    "warpsmith_train_phase_seconds": "What a phase of the last step took.",
}
EVERY_SECONDS = 1.0


class PoolMetrics:
    """One pool's numbers, set at most once a second: a verdict must not wait for them."""

    def __init__(self, role: str) -> None:
        from ray.util.metrics import Counter, Gauge

        tags = {"role": role}
        made: dict[str, Any] = {}
        for kind, names in ((Gauge, POOL_GAUGES), (Counter, POOL_COUNTERS)):
            for name, description in names.items():
                made[name] = kind(name, description=description, tag_keys=("role",))
                made[name].set_default_tags(tags)
        self._made = made
        self._pending = dict.fromkeys(POOL_COUNTERS, 0)
        self._next = 0.0

    def count(self, what: str, number: int = 1) -> None:
        """Adds to warpsmith_pool_<what>."""
        self._pending[f"warpsmith_pool_{what}"] += number

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def show(self, **values: float) -> None:
        """Sets warpsmith_pool_<name> of each value, and passes on what was counted."""
        self._next = time.monotonic() + EVERY_SECONDS
        for name, value in values.items():
            self._made[f"warpsmith_pool_{name}"].set(value)
        for name, number in self._pending.items():
            if number:
                self._made[name].inc(number)
                self._pending[name] = 0
