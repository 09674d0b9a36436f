"""GPU memory between the judge and its jailed processes, by CUDA IPC.

Handles are 64 plain bytes. What a jailed process offers is mapped here only to be copied at once; what the judge lends
(inputs) is written again before each batch, since a mapping cannot be read-only: see docs/judge.md.
"""

from __future__ import annotations

import ctypes
import secrets
from collections.abc import Sequence
from functools import cache
from typing import Any

import cupy
import numpy as np

from judge.memory import NUMPY_TYPES, Array, byte_count
from judge.wire import TensorSpec

ALIGNMENT = 512
"""Bytes that slots are aligned to, as torch's allocator does."""
_HANDLE_BYTES = 64

_driver = ctypes.CDLL("libcuda.so.1")
_driver.cuMemGetAddressRange_v2.argtypes = [
    ctypes.POINTER(ctypes.c_uint64),
    ctypes.POINTER(ctypes.c_size_t),
    ctypes.c_uint64,
]


def allocation_of(address: int) -> tuple[int, int]:
    """(base, bytes) of the allocation that an address lies in. Raises OSError."""
    base, size = ctypes.c_uint64(), ctypes.c_size_t()
    code = _driver.cuMemGetAddressRange_v2(ctypes.byref(base), ctypes.byref(size), ctypes.c_uint64(address))
    if code != 0:
        raise OSError(code, "no such GPU memory")
    return int(base.value), int(size.value)


def view(address: int, owner: Any, dtype: str, shape: tuple[int, ...]) -> Any:
    """A CuPy array over memory at an address; torch dtypes as NUMPY_TYPES has them."""
    numpy_type = np.dtype(NUMPY_TYPES[dtype])
    count = int(np.prod(shape, dtype=np.int64))
    memory = cupy.cuda.UnownedMemory(address, max(count * numpy_type.itemsize, 1), owner)
    return cupy.ndarray(shape, numpy_type, cupy.cuda.MemoryPointer(memory, 0))


def _allocated(size: int) -> int:
    """The address of so many bytes, if need be of those that the judge's pool keeps unused. Raises MemoryError."""
    for last in (False, True):
        try:
            return int(cupy.cuda.runtime.malloc(size))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            if error.status != 2:  # cudaErrorMemoryAllocation
                raise
            if last:
                raise MemoryError(f"no {size} bytes of GPU memory are free") from None
            cupy.get_default_memory_pool().free_all_blocks()
    raise AssertionError


class Slots:
    """One allocation of the judge's with room for the inputs of several calls; lent to jailed processes."""

    def __init__(self, kinds: Sequence[Array], count: int) -> None:
        """``kinds``: arrays whose dtypes and shapes each slot has room for; contents are not copied."""
        self.slots: list[tuple[TensorSpec, ...]] = []
        offset = 0
        for _ in range(count):
            specs = []
            for array in kinds:
                place = offset + secrets.randbelow(8) * ALIGNMENT
                specs.append(TensorSpec(dtype=array.dtype, shape=array.data.shape, place=place))
                offset = -(-(place + max(array.nbytes, 1)) // ALIGNMENT) * ALIGNMENT + ALIGNMENT
            self.slots.append(tuple(specs))
        self.size = max(offset, ALIGNMENT)
        self._address = _allocated(self.size)
        # Between the tensors: NaN for whoever reads past an end.
        cupy.cuda.runtime.memset(self._address, 0xFF, self.size)
        self.handle = bytes(cupy.cuda.runtime.ipcGetMemHandle(self._address))

    def write(self, contents: Sequence[Sequence[Array]]) -> None:
        """Enqueue the copies of the first slots' contents."""
        plan = []
        for slot, arrays in zip(self.slots, contents, strict=False):
            for spec, array in zip(slot, arrays, strict=True):
                if (array.dtype, array.data.shape) != (spec.dtype, spec.shape):
                    raise ValueError(f"{array.dtype} {array.data.shape} does not fit {spec.dtype} {spec.shape}")
                plan.append((array.data.data.ptr, self._address + spec.place, array.nbytes))
        copy_all(cupy.asarray(np.array(plan, np.int64).reshape(-1, 3)))

    def hold(self, contents: Sequence[Sequence[Array]]) -> bool:
        """Whether the first slots' contents are still these, bit for bit."""
        changed = cupy.zeros(1, cupy.int32)
        for slot, arrays in zip(self.slots, contents, strict=False):
            for spec, array in zip(slot, arrays, strict=True):
                if array.nbytes:
                    note_difference(self._address + spec.place, array.data.data.ptr, array.nbytes, changed)
        return int(changed[0]) == 0

    def close(self) -> None:
        if self._address:
            cupy.cuda.runtime.free(self._address)
            self._address = 0


class Stores:
    """Memory of the judge's own for the outputs of several calls, made before they are timed."""

    def __init__(self, kinds: Sequence[Array], count: int) -> None:
        """``kinds``: one call's outputs, for their dtypes and shapes."""
        self._arrays = [
            tuple(Array(dtype=kind.dtype, data=cupy.empty_like(kind.data)) for kind in kinds) for _ in range(count)
        ]
        self.targets = [tuple((int(a.data.data.ptr), a.nbytes) for a in arrays) for arrays in self._arrays]

    def outputs(self, call: int) -> tuple[Array, ...]:
        return self._arrays[call]

    def plan(self, sources: Sequence[Sequence[int]]) -> Any:
        """For copy_all: the copies of the first calls' outputs from these addresses."""
        return cupy.asarray(
            np.array(
                [
                    (address, target, count)
                    for addresses, targets in zip(sources, self.targets, strict=False)
                    for address, (target, count) in zip(addresses, targets, strict=True)
                ],
                np.int64,
            ).reshape(-1, 3)
        )


class Mappings:
    """Allocations of one jailed process, mapped while it lives."""

    def __init__(self) -> None:
        self._mapped: dict[bytes, tuple[int, int]] = {}

    def address(self, spec: TensorSpec) -> int:
        """Where a tensor of that process lies in the judge's address space.

        Raises OSError: there is no such allocation, or the tensor does not fit into it.
        """
        if len(spec.handle) != _HANDLE_BYTES:
            raise OSError(22, "no IPC handle")
        if spec.handle not in self._mapped:
            try:
                base = cupy.cuda.runtime.ipcOpenMemHandle(spec.handle)
            except cupy.cuda.runtime.CUDARuntimeError as error:
                raise OSError(22, str(error)) from None
            self._mapped[spec.handle] = (base, allocation_of(base)[1])
        base, size = self._mapped[spec.handle]
        if not 0 <= spec.place <= size - byte_count(spec):
            raise OSError(22, "beyond the end of its allocation")
        return base + spec.place

    def close(self) -> None:
        for base, _ in self._mapped.values():
            cupy.cuda.runtime.ipcCloseMemHandle(base)
        self._mapped.clear()


def copy_out(mappings: Mappings, spec: TensorSpec) -> Array:
    """Enqueue the copy of a jailed process's tensor into memory of the judge's own. Raises OSError."""
    address = mappings.address(spec)
    data = cupy.empty(spec.shape, NUMPY_TYPES[spec.dtype])
    if data.nbytes:
        _copy(data.data.ptr, address, data.nbytes)
    return Array(dtype=spec.dtype, data=data)


def _copy(to: int, source: int, count: int) -> None:
    cupy.cuda.runtime.memcpyAsync(to, source, count, 3, cupy.cuda.get_current_stream().ptr)


_DIFFERENCE = r"""
extern "C" __global__ void note_difference(const char* a, const char* b, long long n, int* changed) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    bool differs = false;
    for (long long k = i; k < n / 16; k += step) {
        uint4 x = ((const uint4*)a)[k], y = ((const uint4*)b)[k];
        differs |= x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
    }
    for (long long k = n / 16 * 16 + i; k < n; k += step) differs |= a[k] != b[k];
    if (differs) *changed = 1;
}
"""


_COPIES = r"""
extern "C" __global__ void copy_all(const long long* plan) {
    const long long* row = plan + 3 * blockIdx.y;
    const char* from = (const char*)row[0];
    char* to = (char*)row[1];
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    long long n = row[2];
    long long wide = (row[0] | row[1]) & 15 ? 0 : n / 16;
    for (long long k = i; k < wide; k += step) ((uint4*)to)[k] = ((const uint4*)from)[k];
    for (long long k = wide * 16 + i; k < n; k += step) to[k] = from[k];
}
"""


def copy_all(plan: Any) -> None:
    """Enqueue many copies as one kernel: rows of (from, to, bytes). Hundreds of calls of memcpy would take longer, and
    now more, now less, within what is timed."""
    rows = int(plan.shape[0])
    if rows:
        _kernel(_COPIES, "copy_all")((max(1, 4224 // rows), rows), (256,), (plan,))


@cache
def _kernel(source: str, name: str) -> Any:
    return cupy.RawKernel(source, name)


def note_difference(a: int, b: int, count: int, changed: Any) -> None:
    """Enqueue a comparison of bytes at two addresses (multiples of 16); sets ``changed`` when one differs."""
    blocks = max(1, min(1056, count // 4096))
    _kernel(_DIFFERENCE, "note_difference")((blocks,), (256,), (a, b, np.int64(count), changed))


def synchronize() -> None:
    cupy.cuda.get_current_stream().synchronize()


class Flusher:
    """Empties the L2 cache by writing twice its size."""

    def __init__(self) -> None:
        device = cupy.cuda.Device()
        size = int(device.attributes["L2CacheSize"])
        self._data = cupy.empty(2 * size + (1 << 20), np.uint8)

    def flush(self) -> None:
        self._data.fill(secrets.randbelow(256))
