"""What a tracker is given beside numbers: a table of kernels and files, and TensorBoard in place of W&B."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from cluster.errors import ConfigError
from cluster.recording import ROLLOUTS

Artifacts = Literal["none", "data", "all"]

COLUMNS = ("task", "level", "written by", "status", "speedup", "low", "high", "step", "code")
MAX_CODE = 20_000
"""Characters of a kernel in a table."""


def kernel_rows(folder: Path) -> list[tuple[Any, ...]]:
    """The best record of each task in a run's archive, as rows of COLUMNS; tasks without a correct one are left out."""
    from archive.store import Archive

    archive = Archive(f"sqlite:///{folder / 'archive.db'}")
    try:
        levels = {task_id: task.level for task_id, task in archive.tasks().items()}
        best = sorted(archive.summary().best.values(), key=lambda record: record.task_name)
    finally:
        archive.close()
    return [
        (
            record.task_name,
            levels.get(record.task_id, 0),
            record.source,
            str(record.verdict.status),
            record.verdict.speedup,
            record.verdict.speedup_low,
            record.verdict.speedup_high,
            record.step,
            record.code[:MAX_CODE],
        )
        for record in best
    ]


def log_to_wandb(run: Any, folder: Path, artifacts: Artifacts) -> None:
    """The table of kernels, and as artifacts the rollouts and, with "all", the newest published weights.

    Args:
        run: W&B's, not yet finished.
    """
    import wandb

    if (folder / "archive.db").exists():
        table = wandb.Table(columns=list(COLUMNS), data=[list(row) for row in kernel_rows(folder)])
        run.log({"kernels": table})
    if artifacts == "none":
        return
    if (folder / ROLLOUTS).exists():
        data = wandb.Artifact(f"rollouts-{run.id}", type="dataset", description="Prompts, answers, verdicts, rewards")
        data.add_file(str(folder / ROLLOUTS))
        run.log_artifact(data)
    newest = max((folder / "weights").glob("v*[0-9]"), default=None, key=lambda path: path.name)
    if artifacts == "all" and newest is not None:
        model = wandb.Artifact(f"policy-{run.id}", type="model", metadata={"policy_version": int(newest.name[1:])})
        model.add_dir(str(newest))
        run.log_artifact(model)


class TensorBoardMonitor:
    """Event files under <folder>/tensorboard: scalars <stage>/<key> over the step of the stage."""

    def __init__(self, folder: Path) -> None:
        """Raises ConfigError when the package is missing or the folder cannot be written."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError:
            raise ConfigError("tracking.tensorboard needs tensorboardX: pip install tensorboardX") from None
        try:
            self._writer = SummaryWriter(str(folder / "tensorboard"), write_to_disk=True)
        except OSError as error:
            raise ConfigError(f"{folder / 'tensorboard'}: cannot be written: {error.strerror}") from None

    def log(self, line: Mapping[str, Any]) -> None:
        from cluster.tracking import flatten

        stage, step = line.get("stage", "run"), line.get("step")
        for key, value in flatten(line).items():
            if key != "step":
                self._writer.add_scalar(f"{stage}/{key}", value, step)
        self._writer.flush()

    def close(self, *, exit_code: int) -> None:
        self._writer.close()


class RayMonitor:
    """The last step's numbers for Ray's dashboard and Grafana; nothing where no Ray is running."""

    def __init__(self) -> None:
        self._gauges: dict[str, Any] = {}

    def log(self, line: Mapping[str, Any]) -> None:
        import sys

        ray = sys.modules.get("ray")
        if ray is None or not ray.is_initialized():
            return
        if not self._gauges:
            from ray.util.metrics import Gauge

            from actors.gauges import TRAIN_GAUGES

            keys = ("stage", "phase")
            self._gauges = {name: Gauge(name, description=text, tag_keys=keys) for name, text in TRAIN_GAUGES.items()}
        tags = {"stage": str(line.get("stage", "run")), "phase": ""}
        for key, name in (("step", "step"), ("reward_mean", "reward"), ("policy_version", "policy_version")):
            if isinstance(line.get(key), int | float):
                self._gauges[f"warpsmith_train_{name}"].set(line[key], tags=tags)
        for phase, seconds in dict(line.get("seconds", {})).items():
            self._gauges["warpsmith_train_phase_seconds"].set(seconds, tags=tags | {"phase": phase})

    def close(self, *, exit_code: int) -> None:
        pass
