"""warpsmith as an algorithm of RLlib: `ray.tune.Tuner` sweeps our configuration, `algo.train()` does one step.

    config = WarpsmithConfig().warpsmith("configs/cpu.toml", {"learner.lr": 1e-4, "run.steps": 3})
    algo = config.build_algo()
    print(algo.train()["reward_mean"])
    algo.save_to_path("checkpoint")          # the whole run: weights, optimizer, archive, manifest
    algo.stop()

    Tuner(WarpsmithAlgorithm, param_space={"overrides": {"learner.lr": tune.grid_search([1e-5, 1e-4])}})

One iteration is one contrastive step; the first one also does what comes before it (experts, sft, self_supervised). The
numbers of metrics.jsonl go through RLlib's MetricsLogger. A checkpoint is a copy of the run's folder, so that it is
resumed as exactly as any run. RLlib's environments, modules and learners are not used: the pools and the engine are
warpsmith's own, started when the first iteration begins.
"""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.algorithm_config import AlgorithmConfig
from ray.tune import PlacementGroupFactory

from cluster.config import Config, load_config
from cluster.driver import Mode, Opener, before_contrast, mark_finished, opened_run
from cluster.errors import ConfigError
from cluster.run import Run, resolve_tasks
from cluster.run_folder import open_run
from cluster.session import bundles_of

PROGRESS = "warpsmith_algorithm.json"
"""In a checkpoint, beside the run's own files: which configuration, and how many iterations."""


class WarpsmithConfig(AlgorithmConfig):
    """A preset and overrides of it; RLlib's own settings stay at values that start nothing."""

    def __init__(self, algo_class: type | None = None) -> None:
        super().__init__(algo_class=algo_class or WarpsmithAlgorithm)
        self.preset: str | None = None
        self.overrides: dict[str, Any] = {}
        self.env_runners(num_env_runners=0, create_local_env_runner=False)
        self.experimental(_validate_config=False)

    def warpsmith(self, preset: str | None = None, overrides: Mapping[str, Any] | None = None) -> WarpsmithConfig:
        """Set what is run.

        Args:
            preset: a TOML file; the embedded configs/cpu.toml if left out.
            overrides: by dotted key, such as {"learner.lr": 1e-5}; values may be search spaces of Tune.
        """
        self.preset = preset
        self.overrides = dict(overrides or {})
        return self


class WarpsmithAlgorithm(Algorithm):
    """See the module's docstring."""

    opener: ClassVar[Opener | None] = None
    """Starts the engines, judges and learner; the Ray actors if left out."""

    @classmethod
    def get_default_config(cls) -> WarpsmithConfig:
        return WarpsmithConfig(cls)

    @classmethod
    def default_resource_request(cls, config: Any) -> PlacementGroupFactory:
        """Half a CPU for the trial's own process, and what the run's members ask for.

        A bundle each: the first one is the trial's alone, and its actors are placed in the others.
        """
        ours = resolve(_get(config, "preset"), _get(config, "overrides"))
        members = [dict(part.resources) for part in bundles_of(ours, learns=True) for _ in range(part.count)]
        return PlacementGroupFactory([{"CPU": 0.5}, *members])

    def setup(self, config: Any) -> None:
        """Checks the configuration; engines are started by the first iteration. Raises ConfigError."""
        self._open = ExitStack()
        self._run: Run | None = None
        self._ours = resolve(self.config.preset, self.config.overrides)
        if self._ours.run.max_staleness:
            raise ConfigError("run.max_staleness: an iteration of RLlib is one whole step; set it to 0")
        if "run.folder" not in self.config.overrides:
            run = self._ours.run.model_copy(update={"folder": str(Path(self.logdir).absolute() / "runs")})
            self._ours = self._ours.model_copy(update={"run": run})
        # What the stock methods look at.
        self.env_runner_group = self.eval_env_runner_group = self.learner_group = None
        self.callbacks: list[Any] = []
        self._set_up_metrics()

    def training_step(self) -> None:
        """One contrastive step, and before the first one all that comes before it.

        Raises ConfigError once run.steps are done, and what the stages raise.
        """
        from cluster.stages import contrastive_step

        run = self._run or self._start()
        if run.state.step >= run.config.run.steps:
            raise ConfigError(f"run.steps = {run.config.run.steps} are done: raise it, or stop before")
        before_contrast(run)
        contrastive_step(run)
        for key, value in numbers(run.state.line):
            self.metrics.log_value(key, value, window=1)
        if run.state.step >= run.config.run.steps:
            mark_finished(run)

    def step(self) -> dict[str, Any]:
        """As every Algorithm's; with ``done`` once run.steps are done, which ends a trial."""
        result: dict[str, Any] = super().step()
        assert self._run is not None
        return result | {"done": self._run.state.finished, "run_folder": str(self._run.folder.path)}

    def restore_env_runners(self, env_runner_group: Any) -> list[int]:
        """Nothing to bring back: the pools do that themselves."""
        return []

    def save_to_path(self, path: str | Path | None = None, **_: Any) -> str:
        """The run's folder as it stands after the last iteration, copied to ``path`` (a new folder if left out).

        Raises ConfigError before the first iteration, or when the copy cannot be written.
        """
        import tempfile

        if self._run is None:
            raise ConfigError("nothing to save yet: call train() first")
        target = Path(path) if path is not None else Path(tempfile.mkdtemp(prefix="warpsmith-"))
        source = self._run.folder.path
        try:
            shutil.copytree(source, target / "run", ignore=shutil.ignore_patterns(".lock", "wandb", "*.tmp"))
            progress = {"preset": self.config.preset, "overrides": self.config.overrides, "iteration": self.iteration}
            (target / PROGRESS).write_text(json.dumps(progress))
        except (OSError, shutil.Error) as error:
            raise ConfigError(f"{target}: the checkpoint cannot be written: {error}") from None
        return str(target)

    def restore_from_path(self, path: str | Path, **_: Any) -> None:
        """Go on from a checkpoint, with this algorithm's configuration.

        Raises ConfigError when there is none.
        """
        source = Path(path)
        progress = _read_progress(source)
        state = json.loads((source / "run" / "state.json").read_text())
        if state["finished"] and state["step"] >= self._ours.run.steps:
            raise ConfigError(f"{source}: its run has done all of run.steps = {self._ours.run.steps}: raise it")
        self._close()
        target = Path(self._ours.run.folder).absolute() / self._ours.run.name
        if target.exists():  # what was there is kept: it may be a run that someone cares for
            target.rename(_free_name(target))
        shutil.copytree(source / "run", target)
        # Chosen by name, so the run is continued under the configuration of this trial, whatever that changes.
        (target / "config.json").write_text(self._ours.model_dump_json(indent=1))
        _move_weights(target, source / "run")
        self._iteration = int(progress["iteration"])

    @classmethod
    def from_checkpoint(cls, path: str | Path, **_: Any) -> WarpsmithAlgorithm:
        """An algorithm that goes on from what ``save_to_path`` wrote, in a folder of its own."""
        progress = _read_progress(Path(path))
        overrides = {key: value for key, value in progress["overrides"].items() if key != "run.folder"}
        config = cls.get_default_config().warpsmith(progress["preset"], overrides)
        algorithm = cls(config)
        algorithm.restore_from_path(path)
        return algorithm

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        self.save_to_path(checkpoint_dir)

    def load_checkpoint(self, checkpoint_dir: str) -> None:
        self.restore_from_path(checkpoint_dir)

    def cleanup(self) -> None:
        """Ends the engines and writes the run's report."""
        self._close()

    def _start(self) -> Run:
        from learner.pretrained import prepare_model

        tasks = resolve_tasks(self._ours)
        model_dir = prepare_model(self._ours.model.path)
        folder, state, message = open_run(self._ours)
        self._open.callback(folder.close)
        print(message)
        self._run = self._open.enter_context(
            opened_run(self._ours, folder, state, tasks, model_dir, print, Mode(), opener=type(self).opener)
        )
        return self._run

    def _close(self) -> None:
        opened, self._open, self._run = self._open, ExitStack(), None
        opened.close()


def resolve(preset: str | None, overrides: Mapping[str, Any] | None) -> Config:
    """The configuration of a preset and dotted overrides. Raises ConfigError in one line."""
    return load_config(preset, [f"{key}={_toml(value)}" for key, value in (overrides or {}).items()])


def numbers(line: Mapping[str, Any], prefix: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    """Every number of a line of metrics.jsonl with the keys that lead to it; those of single groups are left out."""
    for key, value in line.items():
        if isinstance(value, Mapping) and key != "groups":
            yield from numbers(value, (*prefix, str(key)))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*prefix, str(key)), float(value)


def checkpoint_of(result: Any) -> Path | None:
    """Folder of a Tune result's last checkpoint; None without one."""
    return Path(result.checkpoint.path) if result.checkpoint is not None else None


def _read_progress(folder: Path) -> dict[str, Any]:
    try:
        progress: dict[str, Any] = json.loads((folder / PROGRESS).read_text())
    except (OSError, ValueError):
        raise ConfigError(f"{folder}: no checkpoint of warpsmith's: {PROGRESS} is missing or damaged") from None
    return progress


def _toml(value: Any) -> str:
    """As `_parse_value` of the configuration reads it: JSON but for None, which no key takes from a text."""
    return value if isinstance(value, str) else json.dumps(list(value) if isinstance(value, tuple) else value)


def _get(config: Any, key: str) -> Any:
    return config.get(key) if isinstance(config, dict) else getattr(config, key)


def _free_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}-before-restore-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _move_weights(target: Path, source: Path) -> None:
    """Published weights are named by path in the manifest: point it at the copy."""
    for state in (target / "state.json", *(target / "checkpoints").glob("v*.json")):
        manifest = json.loads(state.read_text())
        for version in manifest.get("published", {}).values():
            version["path"] = str(target / "weights" / Path(version["path"]).name)
        state.write_text(json.dumps(manifest, indent=1))
