"""From judged groups to what the learner is given: rewards, their smoothing, advantages, samples."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from cluster.recording import Answer, Group
from learner.advantages import group_advantages
from learner.rewards import RunningReward, overlong_penalty, raw_reward
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
    return [_score(group, settings, rewards, max_tokens) for group in groups]


def _score(group: Group, settings: RewardSettings, rewards: RunningReward, max_tokens: int) -> Group:
    raw = {i: _reward(a, settings, max_tokens) for i, a in enumerate(group.answers) if a.counts}
    smoothed = rewards.smooth_group(group.task_name, list(raw.values()))
    advantages = group_advantages(np.asarray(smoothed, dtype=float), settings.advantage)
    answers = [replace(a, reward=None, smoothed=None, advantage=None) for a in group.answers]
    for (i, reward), smooth, advantage in zip(raw.items(), smoothed, advantages, strict=True):
        answers[i] = replace(answers[i], reward=reward, smoothed=smooth, advantage=float(advantage))
    return replace(group, answers=tuple(answers))


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
