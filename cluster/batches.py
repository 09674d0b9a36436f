"""From judged groups to what the learner is given: rewards, their smoothing, advantages, samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster.recording import Answer, Group
from learner.advantages import group_advantages
from learner.rewards import RunningReward, overlong_penalty, raw_reward, turn_returns
from learner.settings import RewardSettings
from learner.types import Sample


def score_groups(
    groups: Sequence[Group], settings: RewardSettings, rewards: RunningReward, max_tokens: int
) -> list[Group]:
    """The groups with reward, smoothed reward and advantage of each answer that counts, in the same order.

    Args:
        rewards: the running statistics; they take every reward in.
        max_tokens: longest completion, for the penalty of overlong ones.
    """
    families: dict[str, list[int]] = {}
    for place, group in enumerate(groups):
        families.setdefault(group.root_id, []).append(place)
    scored = list(groups)
    for places in families.values():
        found = _score([groups[place] for place in places], settings, rewards, max_tokens)
        for place, group in zip(places, found, strict=True):
            scored[place] = group
    return scored


def _score(family: Sequence[Group], settings: RewardSettings, rewards: RunningReward, max_tokens: int) -> list[Group]:
    """All turns of all trajectories that began with one prompt: they are one group to the advantage."""
    raw: dict[tuple[int, int], float] = {}  # (place in the family, place in its answers)
    trajectories: dict[int, list[tuple[int, int]]] = {}
    for place, group in enumerate(family):
        for i, answer in enumerate(group.answers):
            trajectories.setdefault(group.trajectory if group.root else i, []).append((place, i))
            if answer.counts:
                raw[place, i] = _reward(answer, settings, max_tokens)
    earned: dict[tuple[int, int], float] = {}
    for keys in trajectories.values():
        keys.sort(key=lambda key: family[key[0]].turn)
        returns = turn_returns([raw.get(key) for key in keys], settings.turn_discount, settings.turn_return)
        earned |= {key: value for key, value in zip(keys, returns, strict=True) if value is not None}
    order = sorted(earned)
    smoothed = rewards.smooth_group(family[0].task_name, [earned[key] for key in order])
    advantages = group_advantages(np.asarray(smoothed, dtype=float), settings.advantage)
    answers = [
        [replace(a, reward=None, earned=None, smoothed=None, advantage=None) for a in group.answers] for group in family
    ]
    for (place, i), smooth, advantage in zip(order, smoothed, advantages, strict=True):
        answers[place][i] = replace(
            answers[place][i],
            reward=raw[place, i],
            earned=earned[place, i],
            smoothed=smooth,
            advantage=float(advantage),
        )
    return [replace(group, answers=tuple(found)) for group, found in zip(family, answers, strict=True)]


def _reward(answer: Answer, settings: RewardSettings, max_tokens: int) -> float:
    reward = raw_reward(answer.status, answer.verdict.score, settings.partial_credit)
    if settings.overlong == "penalise":
        length = len(answer.completion.token_ids)
        reward += settings.overlong_penalty * overlong_penalty(length, max_tokens, settings.overlong_buffer)
    return reward


def samples_of(groups: Sequence[Group], settings: RewardSettings) -> list[Sample]:
    """One sample for each answer that has an advantage; cut ones are left out where they are masked."""
    samples = [
        Sample(
            prompt_ids=a.completion.prompt_token_ids,
            completion_ids=a.completion.token_ids,
            behaviour_logprobs=a.completion.logprobs,
            advantage=a.advantage,
            policy_version=a.completion.policy_version,
            group_id=group.prompt.prompt_id,
            truncated=a.completion.finish_reason == "length",
        )
        for group in groups
        for a in group.answers
        if a.advantage is not None
    ]
    return [s for s in samples if not (s.truncated and settings.overlong == "mask")]


def batch_hash(samples: Sequence[Sample]) -> str:
    """16 hex digits that two batches share when every token, logprob and advantage is the same, bit for bit."""
    return hashlib.sha256(repr(list(samples)).encode()).hexdigest()[:16]
