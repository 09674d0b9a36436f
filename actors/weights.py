"""Reads a published set of weights and checks it against the model that shall take it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actors.errors import ActorError
from learner.types import WeightsVersion

Shapes = Mapping[str, tuple[int, ...]]


def model_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of a Hugging Face folder, from the headers of its safetensors files."""
    from safetensors import safe_open

    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as weights:
            shapes.update({name: tuple(weights.get_slice(name).get_shape()) for name in weights.keys()})  # noqa: SIM118
    return shapes


def read_weights(version: WeightsVersion, expected: Shapes) -> dict[str, Any]:
    """The version's tensors by name, on the CPU.

    vLLM only warns when a tensor is missing, so everything is compared here, before anything is touched.

    Raises:
        ActorError: no such file, another content than was published, a tensor missing, unknown or of another shape.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = Path(version.path) / "model.safetensors"
    what = f"weights version {version.policy_version} ({file})"
    try:
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        if digest != version.sha256:
            raise ActorError(f"{what} is not what was published: SHA-256 {digest[:12]}, not {version.sha256[:12]}")
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise ActorError(f"{what} cannot be read: {reason}") from None
    compare_shapes({name: tuple(tensor.shape) for name, tensor in tensors.items()}, expected, what)
    return tensors


def compare_shapes(given: Shapes, expected: Shapes, what: str) -> None:
    """Raises ActorError, naming the first offender of each kind, unless both hold the same names and shapes."""
    missing = sorted(expected.keys() - given.keys())
    extra = sorted(given.keys() - expected.keys())
    wrong = sorted(name for name in given.keys() & expected.keys() if given[name] != expected[name])
    complaints = []
    if missing:
        complaints.append(f"lacks {_some(missing)}")
    if extra:
        complaints.append(f"has {_some(extra)}, which the model does not")
    if wrong:
        name = wrong[0]
        complaints.append(f"{_some(wrong)} is {list(given[name])}, in the model {list(expected[name])}")
    if complaints:
        raise ActorError(f"{what} does not fit the engine's model: {'; '.join(complaints)}")


def _some(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
