"""Saves and restores an engine: trained weights, optimizer, random state, version, in one folder."""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from learner.errors import DamagedCheckpointError, LearnerError

_TAG = "state"
_MANIFEST = "learner.json"
_REFERENCE = "reference.safetensors"


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
    from safetensors import SafetensorError
    from safetensors.torch import save_file

    temporary = folder.with_name(f"{folder.name}.tmp")
    try:
        if rank == 0:
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir(parents=True)
        torch.distributed.barrier()
        engine.save_checkpoint(str(temporary), tag=_TAG, save_latest=False, exclude_frozen_parameters=True)
        torch.save(random_state(), temporary / f"rng-{rank}.pt")
        torch.distributed.barrier()
        if rank == 0:
            tensors = {f"{number:06d}": tensor.contiguous() for number, tensor in enumerate(reference)}
            save_file(tensors, temporary / _REFERENCE)
            content = {"identity": identity, "progress": progress, "sha256": _digests(temporary)}
            (temporary / _MANIFEST).write_text(json.dumps(content, indent=2) + "\n")
            # Renaming onto a folder that is not empty fails, so an old checkpoint of the name steps aside first.
            aside = folder.with_name(f"{folder.name}.old")
            shutil.rmtree(aside, ignore_errors=True)
            if folder.exists():
                folder.replace(aside)
            temporary.replace(folder)
            shutil.rmtree(aside, ignore_errors=True)
        torch.distributed.barrier()
    except (OSError, RuntimeError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise LearnerError(f"cannot save the checkpoint {folder}: {reason}; free some disk space") from error


def load(engine: Any, folder: Path, identity: dict[str, Any]) -> tuple[dict[str, Any], list[torch.Tensor]]:
    """Restores what ``save`` wrote into an engine of the same shape; returns its ``progress`` and ``reference``.

    Every file is compared with its SHA-256 before anything of the engine is touched.

    Raises:
        DamagedCheckpointError: a file is missing, unreadable or not what was written: names it.
        LearnerError: no checkpoint, or one that was written with other settings: names the first.
    """
    from safetensors.torch import load_file

    manifest = folder / _MANIFEST
    if not folder.is_dir():
        raise LearnerError(f"{folder} is no learner checkpoint: give a folder that save() wrote")
    if not manifest.is_file():
        raise DamagedCheckpointError(f"{folder} is no learner checkpoint ({_MANIFEST} is missing): use an older one")
    try:
        content = json.loads(manifest.read_text())
        saved, progress, digests = content["identity"], content["progress"], dict(content["sha256"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedCheckpointError(f"{manifest} is damaged ({error}): use an older checkpoint") from None
    for name, value in identity.items():
        if saved.get(name) != value:
            raise LearnerError(
                f"{folder} was written with {name} = {saved.get(name)}, this run has {value}: use the same"
            )
    _compare(folder, digests)
    try:
        path, _ = engine.load_checkpoint(str(folder), tag=_TAG, load_module_strict=False)
        state = torch.load(folder / f"rng-{torch.distributed.get_rank()}.pt", weights_only=True)
        loaded = load_file(folder / _REFERENCE)
        reference = [loaded[name] for name in sorted(loaded)]
    except Exception as error:  # torch and DeepSpeed raise whatever a damaged file makes them meet
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DamagedCheckpointError(f"checkpoint {folder} is damaged ({reason}): use an older one") from error
    if path is None:  # DeepSpeed's way to say that there is nothing
        raise DamagedCheckpointError(f"checkpoint {folder} holds no DeepSpeed state: use an older one")
    set_random_state(state)
    return progress, reference


def random_state() -> dict[str, Any]:
    """The state of every generator of this process: Python, NumPy, torch on the CPU and on each GPU."""
    numpy_state: Any = np.random.get_state()
    name, keys, position, has_gauss, gauss = numpy_state
    return {
        "python": random.getstate(),
        "numpy": [str(name), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
    }


def set_random_state(state: dict[str, Any]) -> None:
    """Restores what ``random_state`` gave; states of GPUs that are not here are left out."""
    random.setstate(state["python"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(state["torch"])
    for device, values in enumerate(state["cuda"][: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(values, device)


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != _MANIFEST)
    return {str(path.relative_to(folder)): _digest(path) for path in files}


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _compare(folder: Path, digests: dict[str, str]) -> None:
    for name, expected in digests.items():
        try:
            found = _digest(folder / name)
        except OSError as error:
            raise DamagedCheckpointError(
                f"checkpoint {folder} is damaged ({name}: {error.strerror}): use an older one"
            ) from None
        if found != expected:
            raise DamagedCheckpointError(
                f"checkpoint {folder} is damaged ({name} is not what was written: SHA-256 {found[:12]}, not "
                f"{expected[:12]}): use an older one"
            )


def model_fingerprint(model_dir: Path) -> str:
    """Names the base model whose frozen weights a checkpoint leaves out: a hash of its config and weight headers."""
    digest = hashlib.sha256((model_dir / "config.json").read_bytes())
    for file in sorted(model_dir.glob("*.safetensors")):
        with file.open("rb") as stream:
            digest.update(str(file.stat().st_size).encode())
            digest.update(stream.read(1 << 20))
    return digest.hexdigest()[:16]
