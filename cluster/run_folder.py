"""A run's folder and the one manifest that says how far it got.

runs/<name>/config.json    the resolved configuration
            state.json     RunState, replaced atomically after each update: what a resume starts from
            archive.db     every record
            metrics.jsonl  one line a step
            checkpoints/   learner state, newest learner.keep_versions
            weights/       published weights, likewise
            report.html
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from archive.types import new_id
from cluster.config import Config
from cluster.errors import ConfigError
from learner.types import WeightsVersion


class RunState(BaseModel):
    """Where a run stands, written after everything it names is on disk."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    run_id: str = Field(default_factory=new_id)
    wandb_id: str = Field(default_factory=lambda: new_id()[:16])
    sft_updates: int = 0
    """Supervised updates done."""
    step: int = 0
    """Contrastive steps done."""
    rounds: int = 0
    """Self-supervised rounds done."""
    policy_version: int = 0
    checkpoint: str | None = None
    """Folder under checkpoints/: policy, optimizer, reference, every rank's generators, with their SHA-256."""
    rewards: dict[str, Any] = Field(default_factory=dict)
    """State of the running reward statistics."""
    frontier: int = 0
    """Prompts dealt to contrastive steps that are done; the next one is dealt from here. What a prompt shows follows
    from it, the seed and the archive: buckets and samplers hold no state of their own."""
    archive_position: int = 0
    """Records in the archive when this was written: fewer at a resume means that it was tampered with or lost."""
    published: dict[int, WeightsVersion] = Field(default_factory=dict)
    """Weights by the contrastive step after which they were published, as many as stale rollouts may still need."""
    line: dict[str, Any] = Field(default_factory=dict)
    """The last update's line of metrics.jsonl, in case a kill came before it was written there."""
    source: str = ""
    """What the run works from when it is not an engine: kind and SHA-256 of a recording."""
    finished: bool = False


@dataclass(frozen=True, kw_only=True)
class RunFolder:
    path: Path
    lock: IO[str]
    """Held while the run is alive: two drivers never write one folder."""

    @property
    def archive_url(self) -> str:
        return f"sqlite:///{self.path / 'archive.db'}"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def weights(self) -> Path:
        return self.path / "weights"

    def write_state(self, state: RunState) -> None:
        """Replace the manifest; before it, the copy that stays beside the checkpoint it names."""
        text = state.model_dump_json(indent=1)
        if state.checkpoint:
            _write_atomically(self.checkpoints / f"{state.checkpoint}.json", text)
        _write_atomically(self.path / "state.json", text)

    def read_state(self) -> RunState:
        """The manifest on disk, or its copy beside the newest checkpoint. Raises ConfigError when none is readable."""
        return _read_state(self.path)[0]

    def older_states(self, state: RunState) -> list[RunState]:
        """The manifests before this one whose checkpoints are kept, the newest first; unreadable ones are left out."""
        found = []
        for path in self.checkpoints.glob("v*.json"):
            try:
                older = RunState.model_validate_json(path.read_text())
            except (OSError, ValidationError):
                continue
            if older.run_id == state.run_id and older.policy_version < state.policy_version:
                found.append(older)
        return sorted(found, key=lambda one: one.policy_version, reverse=True)

    def close(self) -> None:
        self.lock.close()


def open_run(
    config: Config, *, fresh: bool = False, source: str = "", run_id: str = ""
) -> tuple[RunFolder, RunState, str]:
    """Choose the folder to work in.

    An unfinished run of the same configuration is continued, a finished one too when run.steps asks for more; any
    other is left alone and a new folder (<name>-2, -3, ...) started.

    Args:
        source: what a new run works from, RunState.source; a run from another one is not continued.
        run_id: of a new run; a random one if left out.

    Returns the folder, its state, and the one line that tells the user which it was.
    Raises ConfigError when the disk is full, the folder cannot be written or another driver holds it.
    """
    root = Path(config.run.folder).absolute()
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{root}: cannot be made: {error.strerror}; choose another run.folder") from None
    _check_disk(root, config.run.min_free_disk_gb)
    names = [config.run.name, *(f"{config.run.name}-{number}" for number in range(2, 10_000))]
    last_reason = ""
    for name in names:
        path = root / name
        if not (path / "state.json").exists():
            folder = _claim(path)
            state = RunState(source=source, **({"run_id": run_id} if run_id else {}))
            _write_atomically(path / "config.json", config.model_dump_json(indent=1))
            folder.write_state(state)
            return folder, state, f"{last_reason}starting a new run in {_short(path)}"
        state, note = _read_state(path)
        if fresh:
            last_reason = "as asked, "
        elif state.finished and state.step >= config.run.steps:
            last_reason = f"{_short(path)} is finished, "
        elif state.source != source:
            last_reason = f"{_short(path)} works from something else, "
        elif not _same_config(path, config):
            last_reason = f"{_short(path)} has another configuration, "
        else:
            _write_atomically(path / "config.json", config.model_dump_json(indent=1))
            done = f"{state.sft_updates} supervised updates and {state.step} of {config.run.steps} steps done"
            return _claim(path), state, f"{note}continuing {_short(path)}: {done} (--fresh starts anew)"
    raise ConfigError(f"{root} holds 10,000 runs named {config.run.name}: delete some or choose another run.name")


def _claim(path: Path) -> RunFolder:
    try:
        path.mkdir(parents=True, exist_ok=True)
        lock = (path / ".lock").open("w")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}; choose another run.folder") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(f"{path}: another driver is working on this run; wait for it, or set run.name") from None
    return RunFolder(path=path, lock=lock)


def _same_config(path: Path, config: Config) -> bool:
    """Equal but for run.steps: how far to go does not change what was done."""
    try:
        before = json.loads((path / "config.json").read_text())
        before["run"].pop("steps")
    except (OSError, ValueError, TypeError, KeyError):
        return False
    now = json.loads(config.model_dump_json())
    now["run"].pop("steps")
    return bool(before == now)


def _read_state(path: Path) -> tuple[RunState, str]:
    """The manifest, or the newest copy of it beside a checkpoint, and what to say of that."""
    try:
        return RunState.model_validate_json((path / "state.json").read_text()), ""
    except (OSError, ValidationError):
        pass
    copies = []
    for file in (path / "checkpoints").glob("v*.json"):
        with suppress(OSError, ValidationError):
            copies.append(RunState.model_validate_json(file.read_text()))
    if not copies:
        raise ConfigError(f"{path / 'state.json'}: unreadable; delete the folder or choose another run.name")
    newest = max(copies, key=lambda state: state.policy_version)
    return newest, f"{_short(path / 'state.json')} is unreadable, its copy beside {newest.checkpoint} is used; "


def _check_disk(root: Path, needed_gb: float) -> None:
    free_gb = shutil.disk_usage(root).free / 1e9
    if free_gb < needed_gb:
        raise ConfigError(
            f"{root}: {free_gb:.1f} GB free, {needed_gb:g} GB needed (run.min_free_disk_gb): "
            "free some space or choose another run.folder"
        )


def _write_atomically(path: Path, text: str) -> None:
    temporary = path.with_suffix(path.suffix + ".tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        with temporary.open("w") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None


def _short(path: Path) -> str:
    return os.path.relpath(path)
