"""Where the numbers of a run go: metrics.jsonl beside the run, always, and Weights & Biases where it is wanted.

    tracker = Tracker.open(config, folder, wandb_id, run_id)
    tracker.log({"step": 1, "stage": "contrastive", "reward_mean": 0.4})
    tracker.close(exit_code=0)

The file is the truth: a line is on disk when ``log`` returns. W&B never stops a run: when it cannot be reached the run
is logged offline, under <folder>/wandb, for `wandb sync`.
"""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from cluster.config import Config
from cluster.errors import ConfigError
from cluster.tracking_extras import Artifacts, RayMonitor, TensorBoardMonitor, log_to_wandb

METRICS = "metrics.jsonl"
WANDB_START_SECONDS = 30
WANDB_FINISH_SECONDS = 60
"""W&B waits for ever by default; what was not sent by then is on disk."""

Warn = Callable[[str], None]


class Monitor(Protocol):
    """Takes the line of a step."""

    def log(self, line: Mapping[str, Any]) -> None: ...

    def close(self, *, exit_code: int) -> None: ...


class FileMonitor:
    """Appends one JSON object a line. Raises ConfigError when the file cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            torn = path.exists() and path.read_bytes()[-1:] not in (b"", b"\n")
            self._file = path.open("a", encoding="utf-8")
            if torn:  # a kill in the middle of a line: the next one must not be glued to it
                self._file.write("\n")
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None

    def log(self, line: Mapping[str, Any]) -> None:
        try:
            self._file.write(json.dumps(_finite(line), default=str) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None

    def undo(self, done: Mapping[str, int]) -> None:
        """Take out the lines of steps beyond ``done``, by stage; other lines stay."""
        lines = self._path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
        kept = [line for line in lines if not _is_beyond(line, done)]
        if len(kept) == len(lines):
            return
        temporary = self._path.with_suffix(".tmp")
        try:
            temporary.write_text("".join(kept), encoding="utf-8")
            self._file.close()
            temporary.replace(self._path)
            self._file = self._path.open("a", encoding="utf-8")  # the old handle would write into a file without a name
        except OSError as error:
            raise ConfigError(f"{self._path}: cannot be written: {error.strerror}") from None

    def has(self, stage: Any, step: Any) -> bool:
        """Whether a line of this stage and step is there."""
        return any((one.get("stage"), one.get("step")) == (stage, step) for one in read_metrics(self._path)[0])

    def close(self, *, exit_code: int) -> None:
        self._file.close()


class NullMonitor:
    """Tracking is off."""

    def log(self, line: Mapping[str, Any]) -> None:
        pass

    def close(self, *, exit_code: int) -> None:
        pass


class WandbMonitor:
    """One W&B run; the same id after a resume. Its metrics are named <stage>/<key> over <stage>/step."""

    def __init__(self, run: Any, warn: Warn, folder: Path, artifacts: Artifacts) -> None:
        self._run = run
        self._warn = warn
        self._folder = folder
        self._artifacts: Artifacts = artifacts
        for stage in ("sft", "self_supervised", "contrastive"):
            run.define_metric(f"{stage}/*", step_metric=f"{stage}/step")

    def log(self, line: Mapping[str, Any]) -> None:
        if self._run is None:
            return
        stage = line.get("stage", "run")
        try:
            self._run.log({f"{stage}/{key}": value for key, value in flatten(line).items()})
        except Exception as error:  # whatever ails its service, the run goes on
            self._warn(f"W&B stopped: {_first_line(error)}; metrics go on in {METRICS}")
            self._run = None

    def close(self, *, exit_code: int) -> None:
        if self._run is None:
            return
        try:
            log_to_wandb(self._run, self._folder, self._artifacts)
        except Exception as error:  # a table is worth less than the end of the run
            self._warn(f"W&B was not given the table of kernels and files: {_first_line(error)}")
        try:
            self._run.finish(exit_code=exit_code)
        except Exception as error:  # its service may have died in any way: the run is over and metrics.jsonl whole
            self._warn(f"W&B did not finish: {_first_line(error)}; `wandb sync` the run's wandb folder")


class Tracker:
    """The monitors of a run."""

    def __init__(self, *monitors: Monitor) -> None:
        self._monitors = monitors

    def undo(self, done: Mapping[str, int]) -> None:
        """Take lines of steps beyond ``done`` (by stage) out of metrics.jsonl: they will be done again."""
        for monitor in self._monitors:
            if isinstance(monitor, FileMonitor):
                monitor.undo(done)

    def has(self, stage: Any, step: Any) -> bool:
        """Whether metrics.jsonl holds the line of this update."""
        return any(monitor.has(stage, step) for monitor in self._monitors if isinstance(monitor, FileMonitor))

    @classmethod
    def open(cls, config: Config, folder: Path, wandb_id: str, run_id: str, warn: Warn | None = None) -> Tracker:
        """metrics.jsonl in `folder`, and W&B and TensorBoard as config.tracking says.

        wandb_id: the id under which W&B knows this run, kept in the run folder so that a resume goes on with it.
        Raises ConfigError when metrics.jsonl cannot be written.
        """
        monitors: list[Monitor] = [FileMonitor(folder / METRICS), RayMonitor()]
        if config.tracking.tensorboard:
            monitors.append(TensorBoardMonitor(folder))
        return cls(*monitors, _wandb_monitor(config, folder, wandb_id, run_id, warn or _warn_on_stderr))

    def log(self, line: Mapping[str, Any]) -> None:
        """Write the line of a step; on disk when this returns."""
        for monitor in self._monitors:
            monitor.log(line)

    def close(self, *, exit_code: int = 0) -> None:
        """exit_code: 0 when the run finished, anything else marks it failed in W&B."""
        for monitor in self._monitors:
            monitor.close(exit_code=exit_code)


def read_metrics(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The lines of a metrics.jsonl, and how many were not readable (torn by a kill); a missing file has none."""
    lines: list[dict[str, Any]] = []
    unreadable = 0
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except FileNotFoundError:
        return [], 0
    for text_line in filter(str.strip, text.splitlines()):
        try:
            line = json.loads(text_line)
        except ValueError:
            line = None
        if isinstance(line, dict):
            lines.append(line)
        else:
            unreadable += 1
    return lines, unreadable


def _is_beyond(text: str, done: Mapping[str, int]) -> bool:
    try:
        line = json.loads(text)
        return bool(line["step"] > done.get(line["stage"], line["step"]))
    except (ValueError, KeyError, TypeError):
        return False


def flatten(line: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of nested mappings under names joined by "/"; a list counts its items, texts are left out."""
    flat: dict[str, float] = {}
    for key, value in line.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{name}/")
        elif isinstance(value, list | tuple):
            flat[name] = len(value)
        elif isinstance(value, bool | int | float):
            flat[name] = value
    return flat


def wandb_mode(wanted: str, environment: Mapping[str, str]) -> str:
    """ "online", "offline" or "off" for config.tracking.wandb; auto heeds WANDB_MODE, then WANDB_API_KEY."""
    if wanted != "auto":
        return wanted
    said = environment.get("WANDB_MODE", "").lower()
    if said in ("online", "offline"):
        return said
    if said in ("disabled", "off", "dryrun"):
        return "offline" if said == "dryrun" else "off"
    return "online" if environment.get("WANDB_API_KEY") else "offline"


def _wandb_monitor(config: Config, folder: Path, wandb_id: str, run_id: str, warn: Warn) -> Monitor:
    mode = wandb_mode(config.tracking.wandb, os.environ)
    if mode == "off":
        return NullMonitor()
    for attempt in dict.fromkeys((mode, "offline")):
        try:
            started = _start_wandb(config, folder, wandb_id, run_id, attempt)
            return WandbMonitor(started, warn, folder, config.tracking.artifacts)
        except Exception as error:  # whatever it is: a run is worth more than its tracking
            then = "logging offline" if attempt == "online" else f"only {METRICS} is written"
            warn(f"W&B did not start ({_first_line(error)}): {then}")
            _forget_wandb()
    return NullMonitor()


def _start_wandb(config: Config, folder: Path, wandb_id: str, run_id: str, mode: str) -> Any:
    import wandb

    wandb.setup(wandb.Settings(silent=True))  # the login speaks before the run's own settings are heard
    return wandb.init(
        project=config.tracking.project,
        entity=config.tracking.entity,
        id=wandb_id,
        name=folder.name,
        resume="allow",
        dir=str(folder),
        mode=mode,  # type: ignore[arg-type]
        config={"run_id": run_id, **config.model_dump(mode="json")},
        settings=wandb.Settings(
            silent=True,
            console="off",
            init_timeout=WANDB_START_SECONDS,
            finish_timeout=WANDB_FINISH_SECONDS,
        ),
    )


def _forget_wandb() -> None:
    """End W&B's service process: a failed start leaves the run's id taken there."""
    import wandb

    wandb.teardown(exit_code=1)


def _finite(value: Any) -> Any:
    """NaN and infinities as null: they are not JSON, and browsers refuse them."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _warn_on_stderr(line: str) -> None:
    print(f"warpsmith: warning: {line}", file=sys.stderr)
