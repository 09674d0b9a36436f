"""The training driver: Task -> Prompt -> Completion -> Candidate -> Verdict -> Record -> Batch -> Weights.

    warpsmith train configs/cpu.toml

What was measured is in the archive before it is used; state.json is replaced after each update, when the checkpoint
it names is complete. Every random choice of a step comes from (seed, step), so a resumed run draws the same.
"""

from __future__ import annotations

import time
from pathlib import Path

from archive.store import Archive
from archive.types import ArchivedTask
from cluster.config import Config
from cluster.interrupts import sigterm_as_interrupt
from cluster.run import PROBE_TEXT, Run, resolve_tasks
from cluster.run_folder import RunFolder, RunState, open_run
from cluster.session import Say, open_session
from tasks.types import Task


def train(config: Config, *, fresh: bool = False, say: Say = print) -> int:
    """Run all stages of a configuration; returns the exit code.

    Raises WarpsmithError (one line) for what the user can mend; KeyboardInterrupt after SIGINT or SIGTERM, with
    everything measured already on disk.
    """
    from learner.pretrained import prepare_model

    with sigterm_as_interrupt():
        tasks = resolve_tasks(config)
        say(f"model {config.model.path}")
        model_dir = prepare_model(config.model.path)
        # After what can be wrong in the configuration: a run folder is made for a run that can start.
        folder, state, message = open_run(config, fresh=fresh)
        say(message)
        try:
            _run_stages(config, folder, state, tasks, model_dir, say)
        finally:
            folder.close()
    return 0


def _run_stages(
    config: Config, folder: RunFolder, state: RunState, tasks: tuple[Task, ...], model_dir: Path, say: Say
) -> None:
    from cluster.judging import judge_experts
    from cluster.report import summary_table, write_report
    from cluster.stages import contrastive_step, restore_weights, supervised_updates
    from cluster.tracking import Tracker
    from learner.rewards import RunningReward

    warnings: list[str] = []

    def on_event(line: str) -> None:
        warnings.append(line)
        say(f"warning: {line}")

    archive = Archive(folder.archive_url)
    archive.add_tasks(ArchivedTask.of(task) for task in tasks)
    tracker = Tracker.open(config, folder.path, state.wandb_id, state.run_id)
    outcome = 1
    try:
        say("starting the judges, the rollout engine (vLLM) and the learner (DeepSpeed): about a minute")
        began = time.monotonic()
        with open_session(config, model_dir, folder.path, on_event) as session:
            say(f"ready after {time.monotonic() - began:.0f} s")
            run = Run(
                config=config,
                folder=folder,
                state=state,
                archive=archive,
                tasks=tasks,
                session=session,
                tracker=tracker,
                rewards=RunningReward.from_state(state.rewards)
                if state.rewards
                else RunningReward(config.learner.reward.smoothing_k),
                probe_ids=tuple(session.tokenizer.encode(PROBE_TEXT)),
                say=say,
                warnings=warnings,
            )
            restore_weights(run)
            judge_experts(run)
            supervised_updates(run)
            while run.state.step < config.run.steps:
                contrastive_step(run)
            run.state = run.state.model_copy(update={"finished": True})
            folder.write_state(run.state)
        outcome = 0
    finally:
        # The report and the table come out of what is on disk, so an interrupted run has them too.
        tracker.close(exit_code=outcome)
        archive.close()
        report = write_report(folder.path)
        say(summary_table(folder.path))
        say(f"report: {report}")
