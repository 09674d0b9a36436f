"""The training driver: Task -> Prompt -> Completion -> Candidate -> Verdict -> Record -> Batch -> Weights.

    warpsmith train configs/cpu.toml
    warpsmith train configs/cpu.toml --rollout-only                  # sample and judge, learn nothing
    warpsmith train configs/cpu.toml --learn-only runs/cpu           # learn from what was recorded, sample nothing
    warpsmith train configs/cpu.toml --replay runs/cpu               # everything again, with the recorded answers

What was measured is in the archive before it is used; state.json is replaced after each update, when the checkpoint
it names is complete. Every random choice of a step comes from (seed, step), so a resumed run draws the same.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from archive.store import Archive
from archive.types import ArchivedTask
from cluster.config import Config
from cluster.interrupts import sigterm_as_interrupt
from cluster.recording import Recorder, Recording, read_recording
from cluster.run import PROBE_TEXT, Run, resolve_tasks, running_reward
from cluster.run_folder import RunFolder, RunState, open_run
from cluster.session import Say, Session, open_session
from tasks.types import Task

Opener = Callable[[Config, Path, Path, Say], AbstractContextManager[Session]]
"""Starts what a run works with: (config, model folder, run folder, on_event)."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """Which part of the loop a run goes through."""

    kind: Literal["train", "rollout-only", "learn-only", "replay"] = "train"
    recording: Path | None = None
    """A rollouts.jsonl or its run's folder, for learn-only and replay."""

    @property
    def learns(self) -> bool:
        return self.kind != "rollout-only"

    @property
    def starts_engines(self) -> bool:
        return self.kind in ("train", "rollout-only")


def train(
    config: Config,
    *,
    fresh: bool = False,
    say: Say = print,
    mode: Mode | None = None,
    opener: Opener | None = None,
    run_id: str = "",
) -> int:
    """Run all stages of a configuration; returns the exit code.

    Args:
        mode: the whole loop if left out. Any other works in a folder of its own, <name>-<kind>.
        opener: starts the engines, the judges and the learner; Ray actors if left out.
        run_id: of a new run; a random one if left out.

    Raises WarpsmithError (one line) for what the user can mend; KeyboardInterrupt after SIGINT or SIGTERM, with
    everything measured already on disk.
    """
    from cluster.comeback import keep_learning
    from learner.pretrained import prepare_model

    mode = mode or Mode()
    with sigterm_as_interrupt():
        tasks = resolve_tasks(config)
        recording = read_recording(mode.recording) if mode.recording else None
        if mode.kind != "train":
            run_settings = config.run.model_copy(update={"name": f"{config.run.name}-{mode.kind}"})
            config = config.model_copy(update={"run": run_settings})
        say(f"model {config.model.path}")
        model_dir = prepare_model(config.model.path)
        # After what can be wrong in the configuration: a run folder is made for a run that can start.
        # A replay has the recorded run's id, from which the ids of its records follow, and from those its exemplars.
        folder, state, message = open_run(
            config,
            fresh=fresh,
            source=_source(mode, recording),
            run_id=recording.run_id if recording and mode.kind == "replay" else run_id,
        )
        say(message)
        try:
            with opened_run(config, folder, state, tasks, model_dir, say, mode, recording, opener) as run:
                keep_learning(run, partial(_work, mode=mode, recording=recording))
        finally:
            folder.close()
    return 0


def _source(mode: Mode, recording: Recording | None) -> str:
    if recording is None:
        return "" if mode.kind == "train" else mode.kind
    return f"{mode.kind} {hashlib.sha256(recording.where.read_bytes()).hexdigest()[:16]}"


def samples(config: Config) -> bool:
    """Whether the stages ask or judge anything; supervised updates by a corpus need the learner only."""
    return bool(
        config.run.steps
        or config.self_supervised.rounds
        or config.sft.samples_models
        or config.tasks.expert_records
        or config.run.sft_epochs
    )


def _needs_engines(mode: Mode, config: Config) -> bool:
    return mode.starts_engines and samples(config)


def _opener(mode: Mode, config: Config, recording: Recording | None) -> Opener:
    if _needs_engines(mode, config):
        return lambda *arguments: open_session(*arguments, learns=mode.learns)
    from cluster.replay import open_local_session

    used = recording if mode.kind == "replay" else None
    return lambda config, model_dir, work_dir, _: open_local_session(config, model_dir, work_dir, used)


@contextmanager
def opened_run(
    config: Config,
    folder: RunFolder,
    state: RunState,
    tasks: tuple[Task, ...],
    model_dir: Path,
    say: Say,
    mode: Mode,
    recording: Recording | None = None,
    opener: Opener | None = None,
) -> Iterator[Run]:
    """Everything that the stages work with, restored to where the manifest says; the report is made on the way out.

    Raises WarpsmithError of what does not start or cannot be restored.
    """
    from cluster.progress import restore
    from cluster.report import summary_table, write_report
    from cluster.tracking import Tracker

    warnings: list[str] = []

    def on_event(line: str) -> None:
        warnings.append(line)
        say(f"warning: {line}")

    archive = Archive(folder.archive_url)
    archive.add_tasks(ArchivedTask.of(task) for task in tasks)
    tracker = Tracker.open(config, folder.path, state.wandb_id, state.run_id)
    keeps = mode.starts_engines and config.run.record_rollouts
    recorder = Recorder(folder.path) if keeps or mode.kind == "rollout-only" else None
    outcome = 1
    try:
        say(_starting(mode, config))
        began = time.monotonic()
        with (opener or _opener(mode, config, recording))(config, model_dir, folder.path, on_event) as session:
            say(f"ready after {time.monotonic() - began:.0f} s")
            run = Run(
                config=config,
                folder=folder,
                state=state,
                archive=archive,
                tasks=tasks,
                session=session,
                tracker=tracker,
                rewards=running_reward(config, state),
                probe_ids=tuple(session.tokenizer.encode(PROBE_TEXT)),
                say=say,
                warnings=warnings,
                recorder=recorder,
            )
            restore(run)
            yield run
        outcome = 0
    finally:
        # The report and the table come out of what is on disk, so an interrupted run has them too.
        tracker.close(exit_code=outcome)
        if recorder is not None:
            recorder.close()
        archive.close()
        report = write_report(folder.path)
        say(summary_table(folder.path))
        say(f"report: {report}")


def mark_finished(run: Run) -> None:
    """The manifest says that the run has reached its end, and its weights are there as a folder."""
    if run.config.rollout.channel == "memory" and run.session.learner is not None:
        run.session.learner.publish(run.folder.weights)  # its steps wrote none
    run.state = run.state.model_copy(update={"finished": True})
    run.folder.write_state(run.state)


def before_contrast(run: Run) -> None:
    """What comes before the first contrastive step and has not been done yet: experts, sft, self_supervised."""
    from cluster.judging import judge_experts
    from cluster.stages import self_supervised_round, supervised_updates

    judge_experts(run)
    if run.session.learner is not None:
        supervised_updates(run)
        while run.state.rounds < run.config.self_supervised.rounds:
            self_supervised_round(run)


def _work(run: Run, *, mode: Mode, recording: Recording | None) -> None:
    if recording is not None and mode.kind == "learn-only":
        _learn(run, recording)
    else:
        _loop(run, mode)
    mark_finished(run)


def _loop(run: Run, mode: Mode) -> None:
    from cluster.stages import contrastive_step
    from cluster.streaming import stream_steps

    before_contrast(run)
    if mode.learns and run.config.run.max_staleness:
        stream_steps(run)
    while run.state.step < run.config.run.steps:
        contrastive_step(run)


def _learn(run: Run, recording: Recording) -> None:
    """The recorded rounds and steps in order, as many as the recording holds."""
    from cluster.stages import Collected, contrastive_step, self_supervised_round, supervised_by_rejection

    supervised_by_rejection(run, recording.step_groups("sft", 0))
    for number in recording.steps("self_supervised")[run.state.rounds :]:
        groups = recording.step_groups("self_supervised", number)
        self_supervised_round(run, Collected(step=number, groups=groups))
    steps = recording.steps("contrastive")
    for step in steps[run.state.step :]:
        run.say(f"step {step} of {len(steps)} recorded ones")
        contrastive_step(run, Collected(step=step, groups=recording.step_groups("contrastive", step)))


def _starting(mode: Mode, config: Config) -> str:
    if not _needs_engines(mode, config):
        return "starting the learner (DeepSpeed) in this process"
    learner = " and the learner (DeepSpeed)" if mode.learns else ""
    return f"starting the judges, the rollout engine (vLLM){learner}: about a minute"
