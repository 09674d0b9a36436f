"""Which operator and which model to ask next: the pair that earns most for its cost, by Thompson sampling.

Reward and cost of a pull are in [0, 1]. For each arm one draws a believable mean reward from Beta(1 + sum r, 1 + n -
sum r) and a believable mean cost from the same for c, and pulls the arm whose ratio is the largest (budgeted Thompson
sampling: Xia et al., IJCAI 2015). Arms that were never pulled are tried first. Pulls are read off records, so nothing
is lost when a search is interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from archive.types import Record

CORRECT_REWARD = 0.1
"""Of a correct kernel that is no faster than what was known."""


class Arm(NamedTuple):
    """What can be pulled."""

    operator: str
    model: str


@dataclass(frozen=True, kw_only=True)
class Pull:
    """One completion: what was asked whom, and what came of it."""

    arm: Arm
    reward: float
    """0 to 1."""
    cost: float
    """In any unit that all pulls share, such as USD or seconds; at least 0."""


def reward_of(record: Record, best_before: float) -> float:
    """What a record is worth: 0 when wrong, CORRECT_REWARD when correct, up to 1 for twice the best known speedup.

    Args:
        best_before: highest speedup of the task's correct records before it; 0 when there was none, which counts as 1:
            what is to be beaten first is the baseline.
    """
    if record.score <= 0:
        return 0.0
    gain = math.log2(record.score / (best_before or 1.0))
    return CORRECT_REWARD + (1 - CORRECT_REWARD) * min(max(gain, 0.0), 1.0)


def pulls_of(records: Sequence[Record], costs: Mapping[str, float]) -> list[Pull]:
    """What each answer of a model earned and cost.

    Args:
        records: of one task, in the order in which they were made.
        costs: by group_id; 0 for one that is not there.
    """
    pulls, best = list[Pull](), 0.0
    for record in records:
        if record.group_id is not None and record.source != "expert":
            arm = Arm(record.operator, record.source)
            pulls.append(Pull(arm=arm, reward=reward_of(record, best), cost=costs.get(record.group_id, 0.0)))
        best = max(best, record.score)
    return pulls


def choose_arm(arms: Sequence[Arm], pulls: Sequence[Pull], rng: np.random.Generator) -> Arm:
    """The arm to pull next. `arms` must not be empty; pulls of other arms only help to scale the costs."""
    most = max((pull.cost for pull in pulls), default=0.0)
    best, best_value = arms[0], -1.0
    mine = {arm: [pull for pull in pulls if pull.arm == arm] for arm in arms}
    fresh = [arm for arm in arms if not mine[arm]]
    if fresh:
        return fresh[int(rng.integers(len(fresh)))]
    for arm in arms:
        value = _draw([pull.reward for pull in mine[arm]], rng)
        if most > 0:  # free models: reward alone
            value /= _draw([pull.cost / most for pull in mine[arm]], rng)
        if value > best_value:
            best, best_value = arm, value
    return best


def _draw(values: Sequence[float], rng: np.random.Generator) -> float:
    total = float(sum(min(max(value, 0.0), 1.0) for value in values))
    return max(float(rng.beta(1 + total, 1 + len(values) - total)), 1e-6)


@dataclass(frozen=True, kw_only=True)
class ArmSummary:
    """An arm at a glance, for the report."""

    arm: Arm
    pulls: int
    reward: float
    """Mean."""
    cost: float
    """Sum."""


def summarise_arms(pulls: Sequence[Pull]) -> list[ArmSummary]:
    """Every arm that was pulled, the highest mean reward first."""
    found = []
    for arm in {pull.arm for pull in pulls}:
        mine = [pull for pull in pulls if pull.arm == arm]
        reward = sum(pull.reward for pull in mine) / len(mine)
        found.append(ArmSummary(arm=arm, pulls=len(mine), reward=reward, cost=sum(pull.cost for pull in mine)))
    return sorted(found, key=lambda one: (-one.reward, one.arm))
