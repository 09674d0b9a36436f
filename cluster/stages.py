"""The stages of a run, each a function on the Run: supervised updates, self-supervised rounds, contrastive steps."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np

from actors.types import SyncReport
from cluster.batches import batch_hash, samples_of, score_groups
from cluster.corpus import corpus_samples
from cluster.judging import COPY, groups_of, judge_step, with_answers
from cluster.progress import commit, probe_metrics, sync
from cluster.recording import Group, Stage
from cluster.rejection import rejection_batches, sample_by_rejection
from cluster.run import Run, exemplar_pool, metrics_of_group, prompts_of_round, prompts_of_step
from cluster.stage_settings import SftSettings
from learner.types import Sample, StepResult
from search.fingerprint import fingerprint
from search.operators import build_prompt, expert_completion
from search.parser import parse
from search.turns import next_turn, turn_id
from search.types import Completion, Prompt
from tasks.types import Task

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, kw_only=True)
class Collected:
    """A step's judged groups, before they are scored."""

    step: int
    groups: list[Group]
    seconds: dict[str, float] = field(default_factory=dict)


@contextmanager
def clocked(seconds: dict[str, float], phase: str) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.monotonic() - began


def supervised_updates(run: Run) -> None:
    """Stage `sft`: the experts' answers to contrast prompts, then the corpus, then rejection sampling."""
    settings = run.config.run
    experts = [sample for epoch in range(settings.sft_epochs) for sample in _expert_samples(run, epoch)]
    batches = [(experts[i : i + settings.sft_batch], "experts") for i in range(0, len(experts), settings.sft_batch)]
    batches += [(batch, "the corpus") for batch in corpus_samples(run)]
    _supervised_batches(run, batches)
    if run.config.sft.samples_models:
        supervised_by_rejection(run, sample_by_rejection(run), done=len(batches))


def supervised_by_rejection(run: Run, groups: Sequence[Group], done: int = 0) -> None:
    """Learn from what the judge found correct among sampled answers (stage `sft`).

    Args:
        done: updates that come before these.
    """
    _supervised_batches(run, [(batch, "several models") for batch in rejection_batches(run, groups)], done)


def _supervised_batches(run: Run, batches: Sequence[tuple[Sequence[Sample], str]], done: int = 0) -> None:
    """Each batch is an update, some of them with a commit; those that the manifest counts are passed over."""
    for number, (batch, writers) in enumerate(batches, start=done + 1):
        if number <= run.state.sft_updates:
            continue
        total = done + len(batches)
        run.say(f"supervised update {number}/{total}: {len(batch)} answers by {writers}")
        commits = number == total or number % run.config.sft.commit_every == 0
        share = lr_share(run.config.sft, number - done, len(batches))
        result, line = _supervised_update(run, batch, share, synced=commits)
        line = {"step": number, "stage": "sft", **line}
        if commits:
            commit(run, line, sft_updates=number)
        else:
            run.tracker.log(line)
        seconds = line["seconds"]["learn"]
        run.say(f"  loss {result.metrics['loss']:.3f}, {seconds:.1f} s, weights version {result.policy_version}")


def lr_share(settings: SftSettings, number: int, total: int) -> float:
    """Share of the learning rate at update ``number`` of 1 .. total: up in ``warmup`` equal steps, then down to
    ``final_lr`` in equal steps."""
    if number <= settings.warmup:
        return number / (settings.warmup + 1)
    done = (number - settings.warmup - 1) / max(total - settings.warmup - 1, 1)
    return 1.0 - done * (1.0 - settings.final_lr)


def _supervised_update(
    run: Run, batch: Sequence[Sample], lr_scale: float = 1.0, *, synced: bool = True
) -> tuple[StepResult, dict[str, Any]]:
    """One update; with ``synced`` its weights are put into the engines, and compared there."""
    learner, seconds = run.session.the_learner, dict[str, float]()
    before = learner.probe(run.probe_ids) if synced else ()
    with clocked(seconds, "learn"):
        result = learner.sft_step(batch, lr_scale)
    if not synced:
        return result, _learnt(run, result, batch, seconds)
    with clocked(seconds, "sync"):
        report = sync(run)
    return result, _learnt(run, result, batch, seconds) | probe_metrics(before, report)


def _learnt(run: Run, result: StepResult, batch: Sequence[Sample], seconds: dict[str, float]) -> dict[str, Any]:
    return {
        "policy_version": result.policy_version,
        "learner": result.metrics,
        "batch": batch_hash(batch),
        "seconds": seconds,
        "warnings": run.take_warnings(),
        "time": datetime.now(UTC).isoformat(),
    }


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


def collect(run: Run, stage: Stage, step: int) -> Collected:
    """Ask and judge one step (a round of self_supervised); every record is in the archive when this returns."""
    seconds: dict[str, float] = {}
    prompts = prompts_of_step if stage == "contrastive" else prompts_of_round
    asked_tasks = prompts(run, step)
    of = run.config.run.steps if stage == "contrastive" else run.config.self_supervised.rounds
    name = "step" if stage == "contrastive" else "round"
    run.say(f"{name} {step}/{of}: {', '.join(task.name for task, _ in asked_tasks)}")
    with clocked(seconds, "rollout"):
        completions = run.session.the_rollout.generate([prompt for _, prompt in asked_tasks])
    _say_rollout(run, completions, seconds["rollout"])
    asked = with_answers(asked_tasks, completions, step if stage == "contrastive" else 0)
    with clocked(seconds, "judge"):
        records = judge_step(run, asked)
    groups = groups_of(run, stage, asked, records)
    if stage == "contrastive":
        for turn in range(2, run.config.search.turns + 1):
            groups += _later_turn(run, [group for group in groups if group.turn == turn - 1], turn, seconds)
    return Collected(step=step, groups=[_at(group, step) for group in groups], seconds=seconds)


def _later_turn(run: Run, before: Sequence[Group], turn: int, seconds: dict[str, float]) -> list[Group]:
    """Every trajectory that has room for it goes on by one answer, which is judged; one group each."""
    tasks = {task.name: task for task in run.tasks}
    rollout = run.config.rollout
    asked_tasks: list[tuple[Task, Prompt]] = []
    places: dict[str, tuple[str, int]] = {}
    for group in before:
        for place, answer in enumerate(group.answers):
            trajectory = group.trajectory if group.root else place
            prompt_id = turn_id(group.root_id, turn, trajectory)
            prompt = answer.counts and next_turn(
                group.prompt,
                answer.completion.text,
                answer.verdict,
                prompt_id=prompt_id,
                record_id=answer.record_id,
                count_tokens=lambda messages: len(run.session.chat_ids(messages)),
                max_tokens=rollout.max_model_len - rollout.max_tokens,
            )
            if prompt:
                asked_tasks.append((tasks[group.task_name], prompt))
                places[prompt_id] = (group.root_id, trajectory)
    ended = sum(len(group.answers) for group in before) - len(asked_tasks)
    run.say(f"  turn {turn}: {len(asked_tasks)} trajectories go on, {ended} end for want of room or of a verdict")
    if not asked_tasks:
        return []
    with clocked(seconds, "rollout"):
        completions = run.session.the_rollout.generate([prompt for _, prompt in asked_tasks])
    asked = with_answers(asked_tasks, completions, before[0].step)
    with clocked(seconds, "judge"):
        records = judge_step(run, asked)
    return [
        replace(group, turn=turn, root=places[group.prompt.prompt_id][0], trajectory=places[group.prompt.prompt_id][1])
        for group in groups_of(run, "contrastive", asked, records)
    ]


def contrastive_step(
    run: Run, collected: Collected | None = None, *, on_sync: Callable[[int, SyncReport], None] | None = None
) -> None:
    """One step: ask, judge, learn, put the new weights into the engines, checkpoint (stage `contrastive`).

    Args:
        collected: of the next step, where that has been asked and judged already.
        on_sync: is given the step and the new weights, which are then published but not put into the engines.
    """
    step = run.state.step + 1
    found = collected or collect(run, "contrastive", step)
    seconds = dict(found.seconds)
    groups = score_groups(found.groups, run.config.learner.reward, run.rewards, run.config.rollout.max_tokens)
    run.record(*groups)
    samples = samples_of(groups, run.config.learner.reward)
    if run.session.learner is None:
        commit(run, _line(groups, samples, step, seconds), step=step)
        return
    before = run.session.learner.probe(run.probe_ids)
    with clocked(seconds, "learn"):
        result = run.session.learner.step(samples)
    with clocked(seconds, "sync"):
        report = sync(run, into_engines=on_sync is None)
    line = _line(groups, samples, step, seconds) | {
        "policy_version": result.policy_version,
        "learner": result.metrics,
        **probe_metrics(before, report),
        "warnings": run.take_warnings(),
    }
    commit(run, line, version=report.version, step=step)
    if on_sync is not None:
        on_sync(step, report)  # only now: a rollout must not begin with weights that a resume would not know of
    run.say(
        f"  mean reward {line['reward_mean']:.3f}; weights version {result.policy_version}; "
        + ", ".join(f"{phase} {value:.0f} s" for phase, value in seconds.items())
    )


def self_supervised_round(run: Run, collected: Collected | None = None) -> None:
    """One round: ask, judge, learn from what is correct (stage `self_supervised`)."""
    number, settings = run.state.rounds + 1, run.config.self_supervised
    found = collected or collect(run, "self_supervised", number)
    groups = score_groups(found.groups, run.config.learner.reward, run.rewards, run.config.rollout.max_tokens)
    run.record(*groups)
    samples = successes(groups, settings.max_kept)
    line = _line(groups, samples, number, dict(found.seconds)) | {"stage": "self_supervised", "kept": len(samples)}
    # All updates of a round are one commit: a kill among them goes back to the round's beginning.
    for start in range(0, len(samples), settings.batch):
        last = start + settings.batch >= len(samples)
        result, update = _supervised_update(run, samples[start : start + settings.batch], synced=last)
        line |= {"policy_version": result.policy_version, "learner": result.metrics}
        line["seconds"] |= {name: line["seconds"].get(name, 0.0) + s for name, s in update["seconds"].items()}
    commit(run, line | {"warnings": run.take_warnings()}, rounds=number)
    run.say(f"  {len(samples)} correct answers kept of {sum(len(group.answers) for group in groups)}")


def successes(groups: Sequence[Group], max_kept: int) -> list[Sample]:
    """Supervised samples of each group's distinct correct candidates, at most ``max_kept``, the fastest first."""
    samples = []
    for group in groups:
        seen: set[str] = set()
        for answer in sorted(group.answers, key=lambda a: (-a.verdict.score, a.completion.index)):
            candidate = parse(answer.completion.text).candidate
            if not answer.verdict.is_correct or candidate is None or not answer.counts:
                continue
            mark = fingerprint(candidate.code)
            if mark not in seen and len(seen) < max_kept:
                seen.add(mark)
                samples.append(
                    Sample(
                        prompt_ids=answer.completion.prompt_token_ids,
                        completion_ids=answer.completion.token_ids,
                        policy_version=answer.completion.policy_version,
                        group_id=group.prompt.prompt_id,
                    )
                )
    return samples


def _at(group: Group, step: int) -> Group:
    return group if group.step == step else replace(group, step=step)


def _line(groups: Sequence[Group], samples: Sequence[Sample], step: int, seconds: dict[str, float]) -> dict[str, Any]:
    answers = [answer for group in groups for answer in group.answers]
    raw: dict[str, list[float]] = {}
    turns: dict[int, list[float]] = {}
    for group in groups:
        found = [a.reward for a in group.answers if a.reward is not None]
        raw.setdefault(group.root_id, []).extend(found)
        turns.setdefault(group.turn, []).extend(found)
    rewards = [value for values in raw.values() for value in values]
    best: dict[str, float] = {}
    for group in groups:
        for answer in group.answers:
            if answer.verdict.is_correct:
                best[group.task_name] = max(best.get(group.task_name, 0.0), answer.verdict.score)
    return {
        "step": step,
        "stage": "contrastive",
        "reward_mean": float(np.mean(rewards)) if rewards else 0.0,
        **({"reward_of_turn": {t: float(np.mean(v)) for t, v in turns.items() if v}} if len(turns) > 1 else {}),
        "groups": {prompt_id: metrics_of_group(values) for prompt_id, values in raw.items() if values},
        "speedup_best": best,
        "statuses": dict(Counter(answer.status for answer in answers)),
        "copies": sum(COPY in answer.verdict.flags for answer in answers),
        "batch": batch_hash(samples),
        "tokens": {
            "prompt": sum(len(answer.completion.prompt_token_ids) for answer in answers),
            "completion": sum(len(answer.completion.token_ids) for answer in answers),
        },
        "seconds": seconds,
        "time": datetime.now(UTC).isoformat(),
    }


def _say_rollout(run: Run, completions: Sequence[Completion], seconds: float) -> None:
    tokens = sum(len(completion.token_ids) for completion in completions)
    run.say(f"  {len(completions)} completions, {tokens} tokens, {tokens / max(seconds, 1e-9):.0f} tokens/s")
