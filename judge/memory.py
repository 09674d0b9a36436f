"""Memory that the judge shares with a jailed process: written by the judge only, mapped read-only in the jail."""

from __future__ import annotations

import ctypes
import mmap
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from judge.wire import TensorSpec

PAGE = mmap.PAGESIZE
_F_ADD_SEALS, _SEAL_SEAL, _SEAL_SHRINK, _SEAL_GROW, _SEAL_FUTURE_WRITE = 1033, 1, 2, 4, 16

NUMPY_TYPES = {
    "float16": np.float16,
    "bfloat16": np.uint16,
    "float32": np.float32,
    "float64": np.float64,
    "int8": np.int8,
    "int16": np.int16,
    "int32": np.int32,
    "int64": np.int64,
    "uint8": np.uint8,
    "bool": np.bool_,
}
"""torch dtype name -> how its bytes are read; bfloat16 by its bits (judge/verify.py widens them)."""


def byte_count(spec: TensorSpec) -> int:
    return int(np.prod(spec.shape, dtype=np.int64)) * np.dtype(NUMPY_TYPES[spec.dtype]).itemsize


@dataclass(frozen=True, kw_only=True)
class Array:
    """A tensor's contents in the judge's own memory."""

    dtype: str
    """torch dtype name."""
    data: NDArray[np.generic]  # [...]

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes)


class Arena:
    """A sealed memfd with room for some tensors, a page apart from each other.

    Each begins at a random multiple of 64 bytes in its page, as torch's own tensors do: how inputs and outputs lie
    towards each other can make a kernel twice as slow, and this luck must differ from process to process.

    The judge's mapping is made before F_SEAL_FUTURE_WRITE: from then on nobody can map it writable again, and the
    size is sealed too, so that no truncation turns the judge's next access into a SIGBUS.
    """

    def __init__(self, arrays: Sequence[Array]) -> None:
        self.specs: list[TensorSpec] = []
        offset = 0
        for array in arrays:
            place = offset + secrets.randbelow(PAGE // 64) * 64
            self.specs.append(TensorSpec(dtype=array.dtype, shape=array.data.shape, place=place))
            offset = -(-(place + array.nbytes) // PAGE) * PAGE + PAGE
        self.size = max(offset, PAGE)
        self.fd = os.memfd_create("warpsmith-inputs", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, self.size)
        self._map = mmap.mmap(self.fd, self.size)
        # Between the tensors: NaN for whoever reads past an end. (One who writes there ends by SIGSEGV.)
        np.frombuffer(self._map, np.uint8)[:] = 0xFF
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.fcntl(self.fd, _F_ADD_SEALS, _SEAL_SHRINK | _SEAL_GROW | _SEAL_FUTURE_WRITE | _SEAL_SEAL) != 0:
            raise OSError(ctypes.get_errno(), "the kernel refused to seal a memfd (Linux 5.1 is needed)")
        self.write(arrays)

    def write(self, arrays: Sequence[Array]) -> None:
        """Replace the contents; dtypes and shapes are those the arena was made for."""
        for spec, array in zip(self.specs, arrays, strict=True):
            if (array.dtype, array.data.shape) != (spec.dtype, spec.shape):
                raise ValueError(f"{array.dtype} {array.data.shape} does not fit {spec.dtype} {spec.shape}")
            view = np.frombuffer(self._map, np.uint8, array.nbytes, spec.place)
            view[:] = np.ascontiguousarray(array.data).reshape(-1).view(np.uint8)

    def close(self) -> None:
        self._map.close()
        os.close(self.fd)


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


_libc = ctypes.CDLL(None, use_errno=True)
_libc.process_vm_readv.restype = ctypes.c_ssize_t
_libc.process_vm_readv.argtypes = [
    ctypes.c_int,
    ctypes.POINTER(_Vector),
    ctypes.c_ulong,
    ctypes.POINTER(_Vector),
    ctypes.c_ulong,
    ctypes.c_ulong,
]


def read_tensor(pid: int, spec: TensorSpec) -> Array:
    """Copy a tensor out of another process's memory.

    Raises OSError when the process has no such memory (or is gone).
    """
    data: NDArray[np.generic] = np.empty(spec.shape, NUMPY_TYPES[spec.dtype])
    done = 0
    while done < data.nbytes:
        local = _Vector(data.ctypes.data + done, data.nbytes - done)
        remote = _Vector(spec.place + done, data.nbytes - done)
        count = _libc.process_vm_readv(pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
        if count <= 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        done += count
    return Array(dtype=spec.dtype, data=data)
