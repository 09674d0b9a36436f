"""What the stages of a run share, and how a step's tasks and prompts are chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from archive.store import Archive
from archive.types import Record
from cluster.config import Config
from cluster.errors import ConfigError
from cluster.recording import ExpertVerdict, Group, Recorder
from cluster.run_folder import RunFolder, RunState
from cluster.session import Say, Session
from search.backends import DEVICES
from search.operators import build_prompt
from search.types import Prompt
from tasks.sources import SUITE_NAME, load_tasks
from tasks.types import Task

if TYPE_CHECKING:
    from cluster.tracking import Tracker
    from learner.rewards import RunningReward

PROBE_TEXT = (
    "## Performance analysis\nThe reference makes one pass over memory for each operation, so it is bound by memory "
    "bandwidth.\n## Algorithm design\nFuse the operations into one loop over the rows and keep partial sums in "
    "registers.\n## Code\n```python\nimport torch\nimport warpsmith\n"
)
"""Its logprobs are compared between engine and learner after each sync, and before and after each update."""


@dataclass(kw_only=True)
class Run:
    """What the stages share. The only mutable parts are the state, the reward statistics and the warnings."""

    config: Config
    folder: RunFolder
    state: RunState
    archive: Archive
    tasks: tuple[Task, ...]
    session: Session
    tracker: Tracker
    rewards: RunningReward
    probe_ids: tuple[int, ...]
    say: Say
    warnings: list[str] = field(default_factory=list)
    recorder: Recorder | None = None
    """None where nothing new is sampled."""

    def record(self, *lines: Group | ExpertVerdict) -> None:
        """Keeps them in rollouts.jsonl."""
        if self.recorder is not None:
            self.recorder.write(*lines)

    def take_warnings(self) -> list[str]:
        taken, self.warnings[:] = list(self.warnings), []
        return taken


def running_reward(config: Config, state: RunState) -> RunningReward:
    """The statistics of rewards as the manifest has them, or fresh ones."""
    from learner.rewards import RunningReward

    if not state.rewards:
        return RunningReward(config.learner.reward.smoothing_k)
    return RunningReward.from_state(state.rewards)


def resolve_tasks(config: Config) -> tuple[Task, ...]:
    """The run's tasks in order. Raises TaskError or ConfigError."""
    backend, device = config.search.backend, config.judge.device
    if DEVICES[backend] != device:
        raise ConfigError(
            f'search.backend = "{backend}" is judged on {DEVICES[backend]}, judge.device is "{device}": leave out the '
            "latter, or change one"
        )
    if not config.judge.timed:
        raise ConfigError("judge.timed is false: a run learns from speedups; set it for `warpsmith evaluate` only")
    tasks = tuple(task for name in config.tasks.names or [SUITE_NAME] for task in load_tasks(name))
    refuse_doubled(tasks, "tasks.names")
    return tasks


def refuse_doubled(tasks: Sequence[Task], where: str) -> None:
    """Raises ConfigError, with the key or option that named them, when two tasks have one name."""
    doubled = sorted(name for name, count in Counter(task.name for task in tasks).items() if count > 1)
    if doubled:
        raise ConfigError(f"{where}: {doubled[0]} is there twice: task names must differ")


def tasks_of_step(tasks: tuple[Task, ...], step: int, count: int, seed: int) -> list[Task]:
    """The tasks of step 1, 2, ...: each epoch is a fresh permutation, dealt out without gaps or repeats."""
    chosen = []
    for position in range((step - 1) * count, step * count):
        epoch, place = divmod(position, len(tasks))
        order = np.random.default_rng([seed, 1, epoch]).permutation(len(tasks))
        chosen.append(tasks[order[place]])
    return chosen


def step_rng(seed: int, step: int) -> np.random.Generator:
    return np.random.default_rng([seed, 2, step])


def exemplar_pool(archive: Archive, task: Task, before_step: int) -> list[Record]:
    """The task's records that a prompt of step `before_step` may show: those of finished steps, and the experts."""
    return [record for record in archive.records(task_id=task.task_id) if (record.step or 0) < before_step]


def prompts_of_step(run: Run, step: int) -> list[tuple[Task, Prompt]]:
    """The prompts of a contrastive step, each of another task."""
    chosen = tasks_of_step(run.tasks, step, run.config.run.tasks_per_step, run.config.run.seed)
    pools = [exemplar_pool(run.archive, task, step) for task in chosen]
    return _prompts(run, f"s{step:04d}", chosen, pools, step_rng(run.config.run.seed, step))


def prompts_of_round(run: Run, number: int) -> list[tuple[Task, Prompt]]:
    """The prompts of a self-supervised round, which may show what earlier rounds found.

    All rounds count as step 0 in the archive, before the first contrastive step; the group says which round it was.
    """
    seed, mark = run.config.run.seed, f"r{number:04d}"
    chosen = tasks_of_step(run.tasks, number, run.config.self_supervised.tasks_per_round, seed)
    pools = [[r for r in exemplar_pool(run.archive, task, 1) if (r.group_id or "") < mark] for task in chosen]
    return _prompts(run, mark, chosen, pools, np.random.default_rng([seed, 5, number]))


def _prompts(
    run: Run, mark: str, chosen: list[Task], pools: list[list[Record]], rng: np.random.Generator
) -> list[tuple[Task, Prompt]]:
    return [
        (
            task,
            build_prompt(
                task,
                pool,
                run.config.search,
                rng,
                prompt_id=f"{mark}-{number}-{task.name}",
                count_tokens=run.session.count_tokens,
            ),
        )
        for number, (task, pool) in enumerate(zip(chosen, pools, strict=True))
    ]


def metrics_of_group(values: list[float]) -> dict[str, Any]:
    """Mean and spread of a group's raw rewards, for the report."""
    array = np.asarray(values, dtype=float)
    return {"mean": float(array.mean()), "min": float(array.min()), "max": float(array.max())}
