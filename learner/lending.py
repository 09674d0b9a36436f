"""Weights handed over in memory: one buffer that the learner fills and engines of the same machine read.

On a GPU the buffer is an allocation lent by CUDA IPC, elsewhere anonymous memory that engines open by this process's
descriptor. Neither leaves anything behind when the learner dies. The buffer is kept from version to version: a reader
that comes too late finds other checksums, and no weights.
"""

from __future__ import annotations

import hashlib
import math
import mmap
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch

from learner.errors import LearnerError
from learner.types import WeightsVersion

_ALIGNMENT = 256


@dataclass(frozen=True, kw_only=True)
class Lot:
    """One tensor's place in the buffer."""

    name: str
    shape: tuple[int, ...]
    offset: int
    """Bytes from the buffer's beginning."""
    checksum: int
    """Of ``checksum``."""


@dataclass(frozen=True, kw_only=True)
class Loan:
    """What a reader needs to know: where the buffer is, and what lies in it. All tensors are bfloat16."""

    kind: Literal["cuda", "host"]
    handle: bytes
    """The CUDA IPC handle (64 bytes), or the path of the descriptor."""
    size: int
    lots: tuple[Lot, ...]


def checksum(tensor: torch.Tensor) -> int:
    """Sum of a bfloat16 tensor's bit patterns, each times an odd number of its place: sees changed, moved and missing
    values. int64, wrapping."""
    bits = tensor.reshape(-1).view(torch.int16).to(torch.int64)
    places = torch.arange(bits.numel(), device=bits.device, dtype=torch.int64).mul_(2).add_(1)
    return int(bits.mul_(places).sum())


class Lender:
    """Holds the buffer; ``close`` gives it back."""

    def __init__(self) -> None:
        self._buffer: _Buffer | None = None

    def lend(self, state: Iterable[tuple[str, torch.Tensor]], policy_version: int) -> WeightsVersion:
        """Copies the weights (names and bfloat16 tensors, all on one device) into the buffer.

        Raises:
            LearnerError: CuPy is missing, or there is no memory for the buffer.
        """
        tensors = list(state)
        offsets, size = [], 0
        for _, tensor in tensors:
            offsets.append(size)
            size += math.ceil(tensor.numel() * tensor.element_size() / _ALIGNMENT) * _ALIGNMENT
        device = tensors[0][1].device
        if self._buffer is None or self._buffer.size != size:
            self.close()
            self._buffer = _cuda_buffer(size) if device.type == "cuda" else _host_buffer(size)
        lots = []
        for (name, tensor), offset in zip(tensors, offsets, strict=True):
            own = self._buffer.bytes[offset : offset + tensor.numel() * 2].view(torch.bfloat16).view(tensor.shape)
            own.copy_(tensor)
            lots.append(Lot(name=name, shape=tuple(tensor.shape), offset=offset, checksum=checksum(own)))
        if device.type == "cuda":
            torch.cuda.synchronize()
        loan = Loan(kind=self._buffer.kind, handle=self._buffer.handle, size=size, lots=tuple(lots))
        digest = hashlib.sha256(repr([(lot.name, lot.checksum) for lot in lots]).encode()).hexdigest()
        return WeightsVersion(policy_version=policy_version, path="", sha256=digest, loan=loan)

    def close(self) -> None:
        """Frees the buffer."""
        if self._buffer is not None:
            self._buffer.close()
            self._buffer = None


@dataclass(kw_only=True)
class _Buffer:
    kind: Literal["cuda", "host"]
    handle: bytes
    size: int
    bytes: Any
    """[size] uint8 tensor over it."""
    close: Any


def _host_buffer(size: int) -> _Buffer:
    try:
        descriptor = os.memfd_create("warpsmith-weights")
        os.truncate(descriptor, size)
        mapped = mmap.mmap(descriptor, size)
    except OSError as error:
        raise LearnerError(f"no memory to hand {size / 1e6:.0f} MB of weights over: {error.strerror}") from error
    return _Buffer(
        kind="host",
        handle=f"/proc/{os.getpid()}/fd/{descriptor}".encode(),
        size=size,
        bytes=torch.frombuffer(mapped, dtype=torch.uint8),
        close=lambda: os.close(descriptor),
    )


def _cuda_buffer(size: int) -> _Buffer:
    try:
        import cupy
    except ImportError:
        raise LearnerError(
            "weights are handed over on the GPU by CuPy: pip install cupy-cuda13x (of your CUDA version), or set "
            'rollout.channel = "file"'
        ) from None
    runtime = cupy.cuda.runtime
    try:
        # Not of a pool: a handle names a whole allocation.
        address = runtime.malloc(size)
    except runtime.CUDARuntimeError as error:
        raise LearnerError(f"no GPU memory to hand {size / 1e6:.0f} MB of weights over: {error}") from None
    return _Buffer(
        kind="cuda",
        handle=runtime.ipcGetMemHandle(address),
        size=size,
        bytes=cuda_bytes(address, size),
        close=lambda: runtime.free(address),
    )


def cuda_bytes(address: int, size: int) -> torch.Tensor:
    """[size] uint8 over GPU memory that somebody else owns."""
    import cupy

    memory = cupy.cuda.UnownedMemory(address, size, None)
    return torch.from_dlpack(cupy.ndarray((size,), cupy.uint8, cupy.cuda.MemoryPointer(memory, 0)))
