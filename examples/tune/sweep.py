"""Sweep warpsmith's configuration with Ray Tune: two learning rates, the better one by mean reward.

.venv/bin/python examples/tune/sweep.py                              # about 20 minutes on two cores
.venv/bin/python examples/tune/sweep.py --tiny                       # a random model: shows the way, learns nothing
.venv/bin/python examples/tune/sweep.py search.sampler=island        # any key of `warpsmith config show`
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import ray
from ray import tune

from cluster.rllib import WarpsmithAlgorithm, checkpoint_of

TINY: dict[str, Any] = {
    "model.path": "tiny-random",
    "tasks.names": ["gelu"],
    "run.tasks_per_step": 1,
    "run.steps": 1,
    "run.sft_epochs": 0,
    "run.min_free_disk_gb": 0,
    "rollout.group_size": 2,
    "rollout.max_tokens": 16,
    "judge.pairs": 3,
    "judge.calls": 4,
    "learner.lora.rank": 4,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("overrides", nargs="*", help="section.key=value, for all trials")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path("runs/tune"))
    arguments = parser.parse_args()
    overrides: dict[str, Any] = {"tracking.wandb": "off", **(TINY if arguments.tiny else {"run.steps": 2})}
    overrides |= dict(pair.split("=", 1) for pair in arguments.overrides)

    # One trial at a time on a small machine: the logical CPUs are those of one trial.
    asked = WarpsmithAlgorithm.default_resource_request({"preset": None, "overrides": overrides})
    ray.init(num_cpus=math.ceil(asked.required_resources["CPU"]), include_dashboard=False, log_to_driver=False)
    tuner = tune.Tuner(
        WarpsmithAlgorithm,
        param_space={"overrides": overrides | {"learner.lr": tune.grid_search([1e-4, 4e-4])}},
        tune_config=tune.TuneConfig(metric="reward_mean", mode="max"),
        run_config=tune.RunConfig(
            name="sweep",
            storage_path=str(arguments.folder.absolute()),
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=True),
        ),
    )
    results = tuner.fit()
    for result in results:
        rate, metrics = result.config["overrides"]["learner.lr"], result.metrics
        print(
            f"lr {rate:g}: mean reward {metrics['reward_mean']:.3f} after {metrics['step']:.0f} steps, {result.error}"
        )
    best = results.get_best_result()
    print(json.dumps({"best_lr": best.config["overrides"]["learner.lr"], "checkpoint": str(checkpoint_of(best))}))
    ray.shutdown()


if __name__ == "__main__":
    main()
