"""Reads a published set of weights and checks it against the model that shall take it."""

from __future__ import annotations

import hashlib
import math
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actors.errors import ActorError
from learner.types import WeightsVersion

if TYPE_CHECKING:
    from learner.lending import Loan

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
    """The version's tensors by name; those in memory lie where the learner put them, and are to be used at once.

    vLLM only warns when a tensor is missing, so everything is compared here, before anything is touched.

    Raises:
        ActorError: no such file or memory, another content than was published, a tensor missing, unknown or of another
            shape.
    """
    return _borrow(version, expected) if version.loan is not None else _read(version, expected)


def _borrow(version: WeightsVersion, expected: Shapes) -> dict[str, Any]:
    import torch

    from learner.lending import checksum

    loan, what = version.loan, f"weights version {version.policy_version} (in memory)"
    compare_shapes({lot.name: lot.shape for lot in loan.lots}, expected, what)
    whole = _mapped(loan, what)
    tensors = {
        lot.name: whole[lot.offset : lot.offset + 2 * math.prod(lot.shape)].view(torch.bfloat16).view(lot.shape)
        for lot in loan.lots
    }
    changed = [lot.name for lot in loan.lots if checksum(tensors[lot.name]) != lot.checksum]
    if changed:
        raise ActorError(f"{what} is not what was published: {_some(changed)} has other values; publish it again")
    return tensors


_MAPPED: dict[bytes, Any] = {}


def _mapped(loan: Loan, what: str) -> Any:
    """[size] uint8 over the learner's buffer; opened once, as long as it is the same."""
    import torch

    from learner.lending import cuda_bytes

    if loan.handle in _MAPPED and loan.kind == "cuda":
        return _MAPPED[loan.handle]
    try:
        if loan.kind == "cuda":
            import cupy

            runtime = cupy.cuda.runtime
            for handle in list(_MAPPED):  # of a learner that is gone
                runtime.ipcCloseMemHandle(_MAPPED.pop(handle).data_ptr())
            _MAPPED[loan.handle] = cuda_bytes(runtime.ipcOpenMemHandle(loan.handle), loan.size)
            return _MAPPED[loan.handle]
        with Path(loan.handle.decode()).open("rb") as file:
            return torch.frombuffer(mmap.mmap(file.fileno(), loan.size, access=mmap.ACCESS_COPY), dtype=torch.uint8)
    except (OSError, ValueError, RuntimeError, ImportError) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise ActorError(
            f"{what} cannot be reached: {reason}; engines and learner must share a machine and a GPU, or set "
            'rollout.channel = "file"'
        ) from None


def _read(version: WeightsVersion, expected: Shapes) -> dict[str, Any]:
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
