"""Publishes a policy as a model folder that vLLM, or anyone, can load."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch

from learner.adapters import FOLDER, Adapter, save_adapter
from learner.errors import LearnerError
from learner.pretrained import copy_side_files, write_untied_config
from learner.types import WeightsVersion

_VERSION = re.compile(r"v(\d{6,})")


def publish(
    state: Iterable[tuple[str, torch.Tensor]],
    model_dir: Path,
    folder: Path,
    policy_version: int,
    keep: int,
    adapter: Adapter | None = None,
) -> WeightsVersion:
    """Writes ``state`` (names and weights, see ``Policy.merged_state``) and the side files of ``model_dir`` as
    ``folder/v000007``, through a temporary folder and a rename, then removes all but ``keep`` versions.

    An adapter goes into ``adapter/`` there, in PEFT's form.

    Each version has a folder of its own, since an engine that reads a path again may be given stale weights.

    Raises:
        LearnerError: the disk is full or the folder cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    target = folder / f"v{policy_version:06d}"
    temporary = folder / f"{target.name}.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        copy_side_files(model_dir, temporary)
        write_untied_config(model_dir, temporary, dtype="bfloat16")
        weights = temporary / "model.safetensors"
        save_file(dict(state), weights, metadata={"format": "pt"})
        if adapter is not None:
            save_adapter(adapter, temporary / FOLDER)
        with weights.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        # A version that exists was published by a run that was killed and is now resumed before it.
        shutil.rmtree(target, ignore_errors=True)
        temporary.replace(target)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise LearnerError(f"cannot publish weights into {folder}: {reason}; free some disk space") from error
    _prune(folder, policy_version, keep)
    return WeightsVersion(policy_version=policy_version, path=str(target), sha256=digest)


def _prune(folder: Path, current: int, keep: int) -> None:
    versions = sorted(int(match[1]) for path in folder.iterdir() if (match := _VERSION.fullmatch(path.name)))
    # Versions above the current one belong to a future that a resume has undone.
    kept = [version for version in versions if version <= current][-keep:]
    for version in versions:
        if version not in kept:
            shutil.rmtree(folder / f"v{version:06d}", ignore_errors=True)
