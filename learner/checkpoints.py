"""Saves and restores an engine: trained weights, optimizer, random state, version, in one folder."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import torch

from learner.errors import LearnerError

_TAG = "state"
_MANIFEST = "learner.json"
_REFERENCE = "reference.pt"


def save(
    engine: Any,
    folder: Path,
    rank: int,
    identity: dict[str, Any],
    progress: dict[str, Any],
    reference: list[torch.Tensor],
) -> None:
    """Writes the checkpoint through a temporary folder and a rename by rank 0. All ranks call it.

    Args:
        identity: what an engine must equal to load it; JSON-able.
        progress: counters to give back; JSON-able.
        reference: of ``Policy.reference_state``.

    Raises:
        LearnerError: the disk is full or the folder cannot be written.
    """
    temporary = folder.with_name(f"{folder.name}.tmp")
    try:
        if rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        torch.distributed.barrier()
        engine.save_checkpoint(str(temporary), tag=_TAG, save_latest=False, exclude_frozen_parameters=True)
        torch.save(torch.get_rng_state(), temporary / f"rng-{rank}.pt")
        torch.distributed.barrier()
        if rank == 0:
            torch.save(reference, temporary / _REFERENCE)
            (temporary / _MANIFEST).write_text(
                json.dumps({"identity": identity, "progress": progress}, indent=2) + "\n"
            )
            # Renaming onto a folder that is not empty fails, so an old checkpoint of the name steps aside first.
            aside = folder.with_name(f"{folder.name}.old")
            shutil.rmtree(aside, ignore_errors=True)
            if folder.exists():
                folder.replace(aside)
            temporary.replace(folder)
            shutil.rmtree(aside, ignore_errors=True)
        torch.distributed.barrier()
    except (OSError, RuntimeError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise LearnerError(f"cannot save the checkpoint {folder}: {reason}; free some disk space") from error


def load(engine: Any, folder: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Restores what ``save`` wrote into an engine of the same shape; returns its ``progress`` and ``reference``.

    Raises:
        LearnerError: no (readable) checkpoint, or one that was written with other settings: names the first.
    """
    manifest = folder / _MANIFEST
    if not manifest.is_file():
        raise LearnerError(
            f"{folder} is no learner checkpoint ({_MANIFEST} is missing): give a folder that save() wrote"
        )
    try:
        content = json.loads(manifest.read_text())
        saved, progress = content["identity"], content["progress"]
    except (ValueError, KeyError, TypeError) as error:
        raise LearnerError(f"{manifest} is damaged ({error}): use an older checkpoint") from None
    for name, value in identity.items():
        if saved.get(name) != value:
            raise LearnerError(
                f"{folder} was written with {name} = {saved.get(name)}, this run has {value}: use the same"
            )
    try:
        path, _ = engine.load_checkpoint(str(folder), tag=_TAG, load_module_strict=False)
        state = torch.load(folder / f"rng-{torch.distributed.get_rank()}.pt", weights_only=True)
        reference = torch.load(folder / _REFERENCE, weights_only=True)
    except Exception as error:  # torch and DeepSpeed raise whatever a damaged file makes them meet
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise LearnerError(f"checkpoint {folder} is damaged ({reason}): use an older one") from error
    if path is None:  # DeepSpeed's way to say that there is nothing
        raise LearnerError(f"checkpoint {folder} holds no DeepSpeed state: use an older one")
    torch.set_rng_state(state)
    return progress, reference


def model_fingerprint(model_dir: Path) -> str:
    """Names the base model whose frozen weights a checkpoint leaves out: a hash of its config and weight headers."""
    digest = hashlib.sha256((model_dir / "config.json").read_bytes())
    for file in sorted(model_dir.glob("*.safetensors")):
        with file.open("rb") as stream:
            digest.update(str(file.stat().st_size).encode())
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()[:16]
