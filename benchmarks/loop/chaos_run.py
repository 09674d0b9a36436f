"""The run that benchmarks/chaos.py breaks: the training driver on a Ray cluster, with recorded answers.

    RAY_ADDRESS=... python benchmarks/loop/chaos_run.py FOLDER RUN_ID [section.key=value ...]

It is started again, by the same command, whenever it ends with another exit code than 0.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import recorded

from cluster.config import Config, load_config
from cluster.session import Session, ray_cluster
from warpsmith import WarpsmithError

TASKS = ("gelu", "logsumexp", "skinny_matmul")


def overrides(folder: Path) -> list[str]:
    """A small run whose deadlines are short, so that a stopped process is found soon."""
    return [
        f"run.folder={folder}",
        "run.name=chaos",
        f"tasks.names={json.dumps(TASKS)}",
        "model.path=tiny-random",
        "run.steps=16",
        "run.tasks_per_step=2",
        "run.min_free_disk_gb=0",
        "run.sft_epochs=1",
        "run.learner_restarts=20",
        "rollout.group_size=4",
        "rollout.actors=2",
        "rollout.max_actors=3",
        "rollout.max_retries=20",
        "evaluators.actors=3",
        "evaluators.max_actors=5",
        "evaluators.max_retries=20",
        "learner.keep_versions=3",
        "timeouts.actor_start=60",
        "timeouts.rollout=6",
        "timeouts.judge=4",
        "timeouts.learn=5",
        "timeouts.sync=5",
        "timeouts.shutdown=3",
        "tracking.wandb=off",
    ]


@contextmanager
def open_recorded(config: Config, model_dir: Path, work_dir: Path, on_event: Any) -> Iterator[Session]:
    """The three roles as Ray actors that answer from hashes."""
    import ray

    with ExitStack() as stack:
        stack.enter_context(ray_cluster(config))
        ray.cloudpickle.register_pickle_by_value(recorded)  # workers do not have this folder on their path
        judges = recorded.JudgePool(config.judge, config.evaluators, config.timeouts, on_event=on_event)
        stack.callback(judges.close)
        engines = recorded.EnginePool(Path(), config.rollout, config.timeouts, seed=0, on_event=on_event)
        stack.callback(engines.close)
        learner = recorded.ChainClient(
            Path(), config.learner, config.timeouts, temperature=1.0, work_dir=work_dir, seed=0
        )
        stack.callback(learner.close)
        yield Session(rollout=engines, evaluators=judges, learner=learner, tokenizer=recorded.Words())


def main() -> int:
    """The whole run, or what is left of it; 2 for an error that one line explains."""
    import cluster.driver
    import learner.pretrained

    # The model is never loaded.
    learner.pretrained.prepare_model = lambda *_: Path()
    folder, run_id, *more = sys.argv[1:]
    try:
        config = load_config(None, [*overrides(Path(folder)), *more])
        return cluster.driver.train(config, opener=open_recorded, run_id=run_id, say=_say)
    except WarpsmithError as error:
        print(f"chaos_run: {error}", file=sys.stderr, flush=True)
        return 2


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)  # Ray's threads need seconds to notice a cluster that has lost nodes
