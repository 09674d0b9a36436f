"""What several commands read from their command line: configurations, files, runs, archives."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from cluster.errors import ConfigError

if TYPE_CHECKING:
    from archive.store import Archive
    from archive.types import Record
    from cluster.config import Config


def split_config(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """`[CONFIG] [section.key=value ...]` into the file (None: the embedded default) and the overrides."""
    if arguments and ("=" not in arguments[0] or Path(arguments[0]).is_file()):
        return arguments[0], list(arguments[1:])
    return None, list(arguments)


def config_of(arguments: Sequence[str]) -> Config:
    """The configuration that `[CONFIG] [section.key=value ...]` names. Raises ConfigError."""
    from cluster.config import load_config

    return load_config(*split_config(arguments))


def preset_overrides(preset: str | None) -> list[str]:
    """A preset of `warpsmith optimize` as overrides, which later ones override. ConfigError for an unknown one."""
    import json

    from search.settings import PRESETS

    if preset is None:
        return []
    if preset not in PRESETS:
        raise ConfigError(f"--preset {preset}: there are {', '.join(PRESETS)}")
    values = PRESETS[preset].model_dump(mode="json")
    return [f"evolution.{key}={json.dumps(value)}" for key, value in values.items()]


def read_source(path: Path) -> str:
    """A candidate file's text. Raises ConfigError when it is missing or not UTF-8."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: not UTF-8 text: a candidate is a Python file") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from None


def run_folder(run: str | None, root: str = "runs") -> Path:
    """A run's folder: by path, by name under `root`, or (None) the one that was written last.

    Raises ConfigError when there is none.
    """
    if run is None:
        runs = [path.parent for path in Path(root).glob("*/archive.db")]
        if not runs:
            raise ConfigError(f"no run in {root}/: name a run's folder, or start one with `warpsmith train`")
        return max(runs, key=lambda path: (path / "archive.db").stat().st_mtime)
    for path in (Path(run), Path(root) / run):
        if path.is_dir():
            return path
    raise ConfigError(f"{run}: no such run: give the folder of a run, or its name under {root}/")


@contextmanager
def open_archive(where: str | None) -> Iterator[Archive]:
    """The archive of a run (folder, name, or None for the newest), a database file, or a database URL.

    Raises ConfigError when there is none: looking never makes one.
    """
    if where and "://" in where:
        url = where
    elif where and Path(where).is_file():
        url = str(Path(where).absolute())
    else:
        file = run_folder(where) / "archive.db"
        if not file.is_file():
            raise ConfigError(f"{file}: no such archive: the run has not measured anything")
        url = str(file.absolute())

    from archive.store import Archive

    archive = Archive(url)
    try:
        yield archive
    finally:
        archive.close()


def find_record(archive: Archive, record_id: str) -> Record:
    """A record by its id, or by a beginning of it that no other record has. Raises ConfigError."""
    record = archive.get(record_id)
    if record is not None:
        return record
    matches = archive.ids(record_id)
    if len(matches) == 1 and (record := archive.get(matches[0])) is not None:
        return record
    what = f"{len(matches)} records begin so: give more digits" if matches else "no such record"
    raise ConfigError(f"{record_id}: {what}; `warpsmith archive query` lists them")


@contextmanager
def stdout_for_result() -> Iterator[TextIO]:
    """Yields the real stdout and sends everything else that is written there to stderr.

    At the level of file descriptors, so that libraries written in C and child processes are caught too.
    """
    sys.stdout.flush()
    with os.fdopen(os.dup(1), "w") as real:
        saved = os.dup(1)
        os.dup2(2, 1)
        try:
            yield real
            real.flush()
        finally:
            sys.stdout.flush()
            os.dup2(saved, 1)
            os.close(saved)
