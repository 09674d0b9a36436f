"""CUDA kernels on a CPU, for tests of what they compute where there is no GPU: slow, one thread after the other.

The source goes through g++ with cuda_fibers.h. What differs from a GPU: no race can show, since threads change places
at barriers and shuffles only; arithmetic is g++'s; a barrier that not all threads of a block reach is an error.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from judge.c_declarations import Parameter
from judge.load_cpp import number_converter, pointer_converter
from judge.load_cuda import parse_kernels

HEADER = Path(__file__).with_name("cuda_fibers.h")
MAX_THREADS, MAX_SHARED = 1024, 227 << 10
"""Of one block, on a GPU of compute capability 9.0; shared memory in bytes."""

_DYNAMIC = re.compile(r"extern\s+__shared__\s+([\w ]+?)\s+(\w+)\[\];")


def load_cuda(source: str, options: Sequence[str] = ()) -> Any:
    """In place of ``warpsmith.load_cuda``: kernels are called in the same way, with CPU tensors.

    Raises AssertionError for a source that g++ refuses and for a launch that no GPU would accept.
    """
    if source not in _compiled:
        prepare([source])
    library, number = _compiled[source]
    kernels = parse_kernels(source).items()
    launchers = {name: _launcher(name, parameters, library, number) for name, parameters in kernels}
    return SimpleNamespace(**launchers)


_compiled: dict[str, tuple[ctypes.CDLL, int]] = {}
"""Each source's library, and its number in there."""


def prepare(sources: Sequence[str]) -> None:
    """Compile several sources at once, which takes little longer than one: load_cuda finds them afterwards."""
    text = [f'#include "{HEADER}"', "static void** passed;"]
    for number, source in enumerate(sources):
        text += _as_namespace(source, number)
    with tempfile.TemporaryDirectory() as folder:
        path, target = Path(folder) / "kernel.cpp", Path(folder) / "kernel.so"
        path.write_text("\n".join(text), encoding="utf-8")
        flags = ["-std=c++17", "-O1", "-w", "-fno-strict-aliasing", "-shared", "-fPIC"]
        done = subprocess.run(
            ["g++", *flags, str(path), "-o", str(target)], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[:2000]
        library = ctypes.CDLL(str(target))
    _compiled.update({source: (library, number) for number, source in enumerate(sources)})


def _as_namespace(source: str, number: int) -> list[str]:
    """A source and what launches its kernels. Functions with C linkage are the same in all namespaces, so kernels get
    names of their own."""
    kernels = parse_kernels(source)
    text = [f"#define {name} kernel{number}_{name}" for name in kernels]
    text += [f"namespace source{number} {{", _DYNAMIC.sub(r"\1* \2 = (\1*)dynamic_shared;", source)]
    for name, parameters in kernels.items():
        types = [re.sub(r"\bconst\b", "", parameter.declared) for parameter in parameters]
        given = ", ".join(f"*({declared}*)passed[{i}]" for i, declared in enumerate(types))
        text.append(
            f"static void body_{name}() {{ {name}({given}); }}\n"
            f'extern "C" bool launch{number}_{name}(const Index* grid, const Index* block, void** arguments) {{\n'
            f"    passed = arguments;\n    return run_grid(*grid, *block, body_{name});\n}}"
        )
    return [*text, "}", *(f"#undef {name}" for name in kernels)]


def _launcher(name: str, parameters: Sequence[Parameter], library: ctypes.CDLL, number: int) -> Callable[..., None]:
    launch = getattr(library, f"launch{number}_{name}")
    launch.restype = ctypes.c_bool
    convert = [
        (pointer_converter if p.scalar is None else number_converter)(f"{name}: {p.name}", p) for p in parameters
    ]

    def call(grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        blocks, threads = _three(grid), _three(block)
        assert threads.x * threads.y * threads.z <= MAX_THREADS, f"{name}: too many threads in a block"
        assert blocks.y < 1 << 16 and blocks.z < 1 << 16, f"{name}: too many blocks"
        assert 0 <= shared <= MAX_SHARED, f"{name}: {shared} bytes of shared memory"
        assert len(arguments) == len(parameters), f"{name} takes {len(parameters)} arguments, got {len(arguments)}"
        values = [
            (p.scalar or ctypes.c_void_p)(change(argument))
            for p, change, argument in zip(parameters, convert, arguments, strict=True)
        ]
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(value) for value in values))
        assert launch(ctypes.byref(blocks), ctypes.byref(threads), pointers), f"{name}: threads wait for ever"

    return call


class _Index(ctypes.Structure):
    _fields_ = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


def _three(given: Any) -> _Index:
    parts = tuple(given) if isinstance(given, tuple | list) else (given,)
    assert all(type(part) is int and part > 0 for part in parts) and len(parts) <= 3, given
    return _Index(*parts, *(1,) * (3 - len(parts)))
