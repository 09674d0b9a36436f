"""How a run survives its own death: weights into the engines, checkpoints with their manifest, and the way back.

An update counts when state.json names its checkpoint. Whatever was killed before that is done again from the same
prompts; what was judged meanwhile is found in the archive.
"""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from typing import Any

from actors.sync import sync_weights
from actors.types import SyncReport
from cluster.errors import ConfigError
from cluster.run import Run
from cluster.run_folder import RunState
from learner.errors import DamagedCheckpointError
from learner.rewards import RunningReward
from learner.types import WeightsVersion


def restore(run: Run) -> None:
    """Put the learner where the manifest says, and its weights into the engines.

    A damaged checkpoint is named, and the run goes on from the one before. After a start as after a resume the engines
    are compared with the learner: a wrong model or a stale head is found before any work is done.

    Raises ConfigError when no checkpoint is whole, or the archive holds fewer records than the manifest says.
    """
    damaged: list[str] = []
    older = run.folder.older_states(run.state)
    while run.state.checkpoint and run.session.learner is not None:
        try:
            run.session.learner.load(run.folder.checkpoints / run.state.checkpoint)
            break
        except DamagedCheckpointError as error:
            damaged.append(run.state.checkpoint)
            run.say(f"warning: {error}")
            if not older:
                raise ConfigError(
                    f"{run.folder.path}: no whole checkpoint is left ({', '.join(damaged)} damaged): start anew with "
                    "--fresh"
                ) from None
            _go_back(run, older.pop(0))
    held = run.archive.count()
    if held < run.state.archive_position:
        raise ConfigError(
            f"{run.folder.path}: the archive holds {held} records, the run's manifest knows of "
            f"{run.state.archive_position}: restore archive.db, or start anew with --fresh"
        )
    state = run.state
    run.tracker.undo({"sft": state.sft_updates, "self_supervised": state.rounds, "contrastive": state.step})
    line = run.state.line
    if line and not run.tracker.has(line.get("stage"), line.get("step")):
        run.tracker.log(line)  # the kill came between the manifest and this line
    if run.session.learner is not None:
        sync(run)


def _go_back(run: Run, state: RunState) -> None:
    run.say(
        f"warning: going on from checkpoint {state.checkpoint}: {state.sft_updates} supervised updates and "
        f"{state.step} steps done"
    )
    run.state = state.model_copy(update={"finished": False})
    run.rewards = RunningReward.from_state(state.rewards)
    run.folder.write_state(run.state)


def sync(run: Run, *, into_engines: bool = True) -> SyncReport:
    """Publish the learner's weights and, where an engine samples, load them there and compare the two.

    Args:
        into_engines: False leaves that to whoever asks ahead of the learner.
    """
    learner = run.session.the_learner
    if run.session.live and into_engines:
        rollout, settings = run.session.the_rollout, run.config.rollout
        return sync_weights(
            learner,
            rollout,
            run.folder.weights,
            run.probe_ids,
            max_jump=settings.max_probe_difference,
            channel=settings.channel,
        )
    version = learner.publish(run.folder.weights)
    truth = tuple(learner.probe(run.probe_ids))
    return SyncReport(version=version, learner_logprobs=truth, engine_logprobs=(), difference=math.nan)


def commit(run: Run, line: dict[str, Any], *, version: WeightsVersion | None = None, **counters: int) -> None:
    """Checkpoint the learner, name the checkpoint in the manifest, then log the line of the update.

    Args:
        line: of metrics.jsonl; the manifest keeps it until the next one.
        version: the weights that were published after this update.
        counters: fields of RunState that this update moved.
    """
    state, learner = run.state, run.session.learner
    changes: dict[str, Any] = dict(counters)
    if learner is not None:
        name = f"v{learner.policy_version:06d}"
        if name != state.checkpoint:  # a step that changed no weights (all advantages 0, no KL) keeps the last one
            learner.save(run.folder.checkpoints / name)
        changes |= {"checkpoint": name, "policy_version": learner.policy_version}
    step = counters.get("step", state.step)
    changes |= {
        "rewards": run.rewards.state(),
        "frontier": step * run.config.run.tasks_per_step,
        "archive_position": run.archive.count(),
        "line": line,
    }
    if version is not None and version.loan is None:
        kept = {at: old for at, old in state.published.items() if at >= step - run.config.run.max_staleness}
        changes["published"] = kept | {step: version}
    run.state = state.model_copy(update=changes)
    run.folder.write_state(run.state)
    run.tracker.log(line)
    _prune(run)


def _prune(run: Run) -> None:
    """Only the newest ``keep_versions`` checkpoints stay, those of ``keep_every``, and the one in use."""
    settings, folder = run.config.learner, run.folder.checkpoints
    names = sorted(path.name for path in folder.glob("v*") if path.name[1:].isdigit())
    done = [name for name in names if int(name[1:]) <= run.state.policy_version]
    kept = set(done[-settings.keep_versions :]) | {run.state.checkpoint or ""}
    kept |= {name for name in done if settings.keep_every and int(name[1:]) % settings.keep_every == 0}
    # Those above the current version belong to a future that a damaged checkpoint has undone.
    for name in (name for name in names if name not in kept):
        (folder / f"{name}.json").unlink(missing_ok=True)
        shutil.rmtree(folder / name, ignore_errors=True)


def probe_metrics(before: Sequence[float], report: SyncReport) -> dict[str, float]:
    """Mean log p of the probe text before and after an update, by the learner and by the engine."""
    metrics = {
        "probe_logprob_before": sum(before) / len(before),
        "probe_logprob_after": sum(report.learner_logprobs) / len(report.learner_logprobs),
    }
    if report.engine_logprobs:
        first = report.engine_logprobs[0]
        metrics |= {"probe_engine_after": sum(first) / len(first), "probe_difference": report.difference}
    return metrics
