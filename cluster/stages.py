"""The stages of a run, each a function on the Run: restore the weights, supervised updates, contrastive steps."""

from __future__ import annotations

import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from actors.sync import sync_weights
from archive.types import Record
from cluster.judging import COPY, Asked, judge_step, status_name
from cluster.run import Run, exemplar_pool, metrics_of_group, prompts_of_step
from judge.types import Status
from learner.advantages import group_advantages
from learner.rewards import overlong_penalty, raw_reward
from learner.types import Sample
from search.operators import build_prompt, expert_completion
from search.parser import parse
from search.types import Completion

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def clocked(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.monotonic() - began


def restore_weights(run: Run) -> None:
    """Put the learner's weights into the engines: the checkpoint's after a resume, the model's own at the start.

    Also the first comparison of engine and learner: a wrong model or a stale head is found before any work is done.
    """
    if run.state.checkpoint:
        run.session.learner.load(run.folder.checkpoints / run.state.checkpoint)
    sync(run)


def sync(run: Run) -> Any:
    return sync_weights(
        run.session.learner,
        run.session.rollout,
        run.folder.weights,
        run.probe_ids,
        max_jump=run.config.rollout.max_probe_difference,
    )


def save_progress(run: Run, **changes: Any) -> None:
    """Checkpoint the learner, then name the checkpoint in state.json: a kill between the two loses one update only."""
    version = run.session.learner.policy_version
    name = f"v{version:06d}"
    if name != run.state.checkpoint:  # a step that changed no weights (all advantages 0, no KL) keeps the last one
        run.session.learner.save(run.folder.checkpoints / name)
    run.state = run.state.model_copy(
        update={"checkpoint": name, "policy_version": version, "rewards": run.rewards.state(), **changes}
    )
    run.folder.write_state(run.state)
    for old in sorted(run.folder.checkpoints.glob("v*"))[: -run.config.learner.keep_versions]:
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)


def supervised_updates(run: Run) -> None:
    """Show the policy the protocol: contrast prompts answered by the task's best expert kernel (stage `sft`)."""
    settings = run.config.run
    samples = [sample for epoch in range(settings.sft_epochs) for sample in _expert_samples(run, epoch)]
    batches = [samples[i : i + settings.sft_batch] for i in range(0, len(samples), settings.sft_batch)]
    for number, batch in enumerate(batches, start=1):
        if number <= run.state.sft_updates:
            continue
        run.say(f"supervised update {number}/{len(batches)}: {len(batch)} answers by experts")
        seconds: dict[str, float] = {}
        before = run.session.learner.probe(run.probe_ids)
        with clocked(seconds, "learn"):
            result = run.session.learner.sft_step(batch)
        with clocked(seconds, "sync"):
            report = sync(run)
        with clocked(seconds, "save"):
            save_progress(run, sft_updates=number)
        run.tracker.log(
            {
                "step": number,
                "stage": "sft",
                "policy_version": result.policy_version,
                "learner": result.metrics,
                **_probe_metrics(before, report),
                "seconds": seconds,
                "warnings": run.take_warnings(),
                "time": datetime.now(UTC).isoformat(),
            }
        )
        run.say(
            f"  loss {result.metrics['loss']:.3f}, {seconds['learn']:.0f} s, weights version {result.policy_version}"
        )


def _expert_samples(run: Run, epoch: int) -> list[Sample]:
    rng = np.random.default_rng([run.config.run.seed, 3, epoch])
    samples = []
    for task in run.tasks:
        pool = [record for record in exemplar_pool(run.archive, task, 1) if record.source == "expert"]
        correct = [record for record in pool if record.verdict.is_correct]
        if not correct:
            continue
        best = max(correct, key=lambda record: record.score)
        prompt = build_prompt(
            task, pool, run.config.search, rng, prompt_id=f"sft-{task.name}", count_tokens=run.session.count_tokens
        )
        samples.append(
            Sample(
                prompt_ids=run.session.chat_ids(prompt.messages),
                completion_ids=run.session.answer_ids(expert_completion(best.code, best.analysis)),
                group_id=prompt.prompt_id,
            )
        )
    return [samples[i] for i in rng.permutation(len(samples))]


def contrastive_step(run: Run) -> None:
    """One step: ask, judge, learn, put the new weights into the engines, checkpoint (stage `contrastive`)."""
    step, config = run.state.step + 1, run.config
    seconds: dict[str, float] = {}
    asked_tasks = prompts_of_step(run, step)
    run.say(f"step {step}/{config.run.steps}: {', '.join(task.name for task, _ in asked_tasks)}")
    with clocked(seconds, "rollout"):
        completions = run.session.rollout.generate([prompt for _, prompt in asked_tasks])
    _say_rollout(run, completions, seconds["rollout"])
    by_prompt = {prompt.prompt_id: (task, prompt) for task, prompt in asked_tasks}
    asked = [
        Asked(
            task=by_prompt[completion.prompt_id][0],
            prompt=by_prompt[completion.prompt_id][1],
            completion=completion,
            parsed=parse(completion.text),
            step=step,
        )
        for completion in completions
    ]
    with clocked(seconds, "judge"):
        records = judge_step(run, asked)
    samples, raw = samples_of_step(run, asked, records)
    before = run.session.learner.probe(run.probe_ids)
    with clocked(seconds, "learn"):
        result = run.session.learner.step(samples)
    with clocked(seconds, "sync"):
        report = sync(run)
    with clocked(seconds, "save"):
        save_progress(run, step=step)
    groups = {prompt_id: metrics_of_group(values) for prompt_id, values in raw.items()}
    rewards = [value for values in raw.values() for value in values]
    run.tracker.log(
        {
            "step": step,
            "stage": "contrastive",
            "policy_version": result.policy_version,
            "reward_mean": float(np.mean(rewards)),
            "groups": groups,
            "speedup_best": _best_by_task(records),
            "statuses": dict(Counter(status_name(record) for record in records)),
            "copies": sum(COPY in record.verdict.flags for record in records),
            "learner": result.metrics,
            **_probe_metrics(before, report),
            "tokens": {
                "prompt": sum(len(a.completion.prompt_token_ids) for a in asked),
                "completion": sum(len(a.completion.token_ids) for a in asked),
            },
            "seconds": seconds,
            "warnings": run.take_warnings(),
            "time": datetime.now(UTC).isoformat(),
        }
    )
    run.say(
        f"  mean reward {np.mean(rewards):.3f}; weights version {result.policy_version}; "
        + ", ".join(f"{phase} {value:.0f} s" for phase, value in seconds.items())
    )


def samples_of_step(
    run: Run, asked: Sequence[Asked], records: Sequence[Record]
) -> tuple[list[Sample], dict[str, list[float]]]:
    """Samples with their advantages, and the raw rewards by prompt. A judge_error is never a reward: it is left out."""
    settings = run.config.learner.reward
    groups: dict[str, list[tuple[Asked, float]]] = {}
    for a, record in zip(asked, records, strict=True):
        if record.verdict.status is Status.JUDGE_ERROR or not a.completion.token_ids:
            continue
        reward = raw_reward(status_name(record), record.score, settings.partial_credit)
        if settings.overlong == "penalise":
            reward += settings.overlong_penalty * overlong_penalty(
                len(a.completion.token_ids), run.config.rollout.max_tokens, settings.overlong_buffer
            )
        groups.setdefault(a.prompt.prompt_id, []).append((a, reward))
    samples: list[Sample] = []
    for prompt_id, members in groups.items():
        task_name = members[0][0].task.name
        smoothed = run.rewards.smooth_group(task_name, [reward for _, reward in members])
        advantages = group_advantages(np.asarray(smoothed, dtype=float), settings.advantage)
        samples += [
            Sample(
                prompt_ids=a.completion.prompt_token_ids,
                completion_ids=a.completion.token_ids,
                behaviour_logprobs=a.completion.logprobs,
                advantage=float(advantage),
                policy_version=a.completion.policy_version,
                group_id=prompt_id,
                truncated=a.completion.finish_reason == "length",
            )
            for (a, _), advantage in zip(members, advantages, strict=True)
        ]
    if settings.overlong == "mask":
        samples = [sample for sample in samples if not sample.truncated]
    return samples, {prompt_id: [reward for _, reward in members] for prompt_id, members in groups.items()}


def _best_by_task(records: Sequence[Record]) -> dict[str, float]:
    best: dict[str, float] = {}
    for record in records:
        if record.verdict.is_correct:
            best[record.task_name] = max(best.get(record.task_name, 0.0), record.score)
    return best


def _probe_metrics(before: Sequence[float], report: Any) -> dict[str, float]:
    return {
        "probe_logprob_before": float(np.mean(before)),
        "probe_logprob_after": float(np.mean(report.learner_logprobs)),
        "probe_engine_after": float(np.mean(report.engine_logprobs[0])),
        "probe_difference": report.difference,
    }


def _say_rollout(run: Run, completions: Sequence[Completion], seconds: float) -> None:
    tokens = sum(len(completion.token_ids) for completion in completions)
    run.say(f"  {len(completions)} completions, {tokens} tokens, {tokens / max(seconds, 1e-9):.0f} tokens/s")
