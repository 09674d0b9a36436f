"""CUDA kernels by NVRTC: compiled in a twentieth of a second, called on torch's current stream.

    kernels = load_cuda('extern "C" __global__ void scale(const float* x, float* y, long long n, float s) {...}')
    kernels.scale((n + 255) // 256, 256, x, y, x.numel(), 2.0)

The declared parameters of each ``extern "C" __global__`` function are read from the source, as load_cpp does. CuPy
compiles and loads; torch is not imported here: whoever passes a tensor has it.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from judge.c_declarations import Parameter, parse_functions
from judge.errors import SignatureError
from judge.load_cpp import CompileError, number_converter, pointer_converter

PRELUDE = """\
#define INFINITY __int_as_float(0x7f800000)
#define NAN __int_as_float(0x7fffffff)
#define HUGE_VALF INFINITY
#define FLT_MAX 3.402823466e+38F
#define FLT_MIN 1.175494351e-38F
#define FLT_EPSILON 1.192092896e-07F
#define DBL_MAX 1.7976931348623158e+308
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295U
#define M_PI 3.14159265358979323846
#define M_SQRT1_2 0.70710678118654752440
#define M_SQRT2 1.41421356237309504880
#define M_2_SQRTPI 1.12837916709551257390
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
#line 1 "kernel.cu"
"""
"""NVRTC has no C headers: what kernels expect of <math.h>, <float.h>, <limits.h> and <stdint.h>."""

OPTIONS = ("--std=c++17", "--device-int128")
_HOST_HEADERS = re.compile(
    r"^[ \t]*#[ \t]*include[ \t]*<(?:cuda_runtime\.h|cuda\.h|math\.h|cmath|float\.h|cfloat|limits\.h|climits|"
    r"stdint\.h|cstdint|stdio\.h|cstdio|stdlib\.h|cstdlib|math_constants\.h|device_launch_parameters\.h)>",
    re.M,
)
_DECORATION = re.compile(r"__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)|__cluster_dims__\s*\([^()]*\)")


def parse_kernels(source: str) -> dict[str, tuple[Parameter, ...]]:
    """The ``extern "C" __global__`` functions of a source, with their parameters. Raises SignatureError."""
    text = _DECORATION.sub(" ", source)
    functions = parse_functions(text)
    kernels = {
        name: parameters
        for name, parameters in functions.items()
        if re.search(rf"__global__[^;{{}}()]*\b{name}\s*\(", text)
    }
    if not kernels:
        raise SignatureError(
            'the source defines no extern "C" __global__ function: write extern "C" __global__ void name(...) {...}'
        )
    return kernels


def whole_source(source: str) -> str:
    """What NVRTC is given: the prelude, and the source without headers of the host, whose lines keep their numbers."""
    return PRELUDE + _HOST_HEADERS.sub("", source)


class CudaFunction:
    """One kernel of a CudaModule."""

    def __init__(self, name: str, parameters: Sequence[Parameter], raw: Any) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._raw = raw
        # 48 KiB may be asked for without leave, less what the kernel declares itself: leave is always asked for.
        self._shared_allowed = 0
        self._converters = tuple(_converter(name, i, p) for i, p in enumerate(self.parameters, start=1))
        self._count = len(self._converters)

    def __call__(self, grid: Any, block: Any, *arguments: Any, shared: int = 0) -> None:
        """Launches the kernel on torch's current stream; returns before it has run.

        Args:
            grid: blocks: an int, or a tuple of up to three.
            block: threads of a block, likewise.
            shared: bytes of dynamic shared memory.

        Raises:
            SignatureError: count, dtype, contiguity or device of the arguments differ from what is declared.
        """
        if len(arguments) != self._count:
            wanted = ", ".join(f"{p.declared} {p.name}" for p in self.parameters)
            raise SignatureError(
                f"{self.name} takes grid, block and {self._count} arguments ({wanted}), got {len(arguments)}"
            )
        if shared > self._shared_allowed:
            self._raw.max_dynamic_shared_size_bytes = shared
            self._shared_allowed = shared
        self._raw.kernel(
            (grid,) if type(grid) is int else _three(self.name, "grid", grid),
            (block,) if type(block) is int else _three(self.name, "block", block),
            [convert(argument) for convert, argument in zip(self._converters, arguments, strict=True)],
            shared,
            _current_stream(),
        )

    @property
    def attributes(self) -> dict[str, int]:
        """What the compiler made of it: num_regs, shared_size_bytes, local_size_bytes, max_threads_per_block, ..."""
        return dict(self._raw.attributes)


def _three(name: str, which: str, given: Any) -> tuple[int, ...]:
    try:
        found = tuple(int(part) for part in (given if isinstance(given, tuple | list) else (given,)))
    except (TypeError, ValueError):
        found = ()
    if not 1 <= len(found) <= 3:
        raise SignatureError(f"{name}: {which} is {given!r:.40}; pass an int or a tuple of up to three ints")
    return found


def _converter(name: str, number: int, parameter: Parameter) -> Callable[[Any], Any]:
    """From an argument to what CuPy passes: an address or a number as 8 bytes, others as a NumPy scalar."""
    import numpy as np

    where = f"{name}: argument {number} ({parameter.name}, {parameter.declared})"
    if parameter.scalar is None:
        address = pointer_converter(where, parameter, "cuda")
        return lambda argument: address(argument) or 0
    convert = number_converter(where, parameter)
    if parameter.scalar is ctypes.c_int64:
        return convert
    numpy_type: Any = np.dtype(parameter.scalar).type
    return lambda argument: numpy_type(convert(argument))


_streams: dict[int, Any] = {}


def _current_stream() -> Any:
    """torch's current stream as CuPy's."""
    import torch

    pointer = torch._C._cuda_getCurrentRawStream(torch._C._cuda_getDevice())
    stream = _streams.get(pointer)
    if stream is None:
        import cupy

        stream = _streams[pointer] = cupy.cuda.ExternalStream(pointer)
    return stream


class CudaModule:
    """The compiled source; each ``extern "C" __global__`` function is an attribute."""

    def __init__(self, raw: Any, kernels: dict[str, tuple[Parameter, ...]]) -> None:
        self._raw = raw
        for name, parameters in kernels.items():
            setattr(self, name, CudaFunction(name, parameters, raw.get_function(name)))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f'the source defines no extern "C" __global__ function {name!r}')


def load_cuda(source: str, options: Sequence[str] = ()) -> CudaModule:
    """Compile CUDA C++ (C++17) with NVRTC for the current device and load its ``extern "C" __global__`` functions.

    Args:
        options: more options of NVRTC, such as "--use_fast_math" or "-DTILE=64".

    Raises:
        CompileError: the compiler's first errors; no CuPy or no GPU.
        SignatureError: a declaration that Python cannot call.
    """
    kernels = parse_kernels(source)
    return CudaModule(_compiler(source, tuple(options)), kernels)


def compile_locally(source: str, options: tuple[str, ...]) -> Any:
    """A cupy.RawModule; CuPy caches by content in the user's own folder. Raises CompileError."""
    try:
        import cupy
    except ImportError:
        raise CompileError("load_cuda needs CuPy: pip install cupy-cuda13x (or the one of your CUDA version)") from None
    try:
        module = cupy.RawModule(code=whole_source(source), options=(*OPTIONS, *options), backend="nvrtc")
        module.compile()
    except cupy.cuda.compiler.CompileException as error:
        raise CompileError(summarise_nvrtc(str(error))) from None
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise CompileError(f"no GPU to compile for: {error}") from None
    return module


def compile_to_cubin(source: str, options: Sequence[str], architecture: str) -> tuple[bytes, str]:
    """Machine code for an architecture such as "sm_90", without any GPU; or nothing, and the first errors."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(whole_source(source), "kernel.cu", [], [])
    flags = [*OPTIONS, f"-arch={architecture}", *(f"-I{folder}" for folder in include_folders()), *options]
    try:
        nvrtc.compileProgram(program, tuple(flags))
    except nvrtc.NVRTCError as error:
        return b"", summarise_nvrtc(nvrtc.getProgramLog(program) or str(error))
    return nvrtc.getCUBIN(program), ""


def include_folders() -> list[str]:
    """Where cuda_fp16.h and its like lie: the toolkit's folder, or those of NVIDIA's wheels."""
    import sys

    import cupy

    toolkit = cupy.cuda.get_cuda_path()
    places = [Path(toolkit) / "include"] if toolkit else []
    for entry in sys.path:
        places += [Path(entry) / "nvidia" / name / "include" for name in ("cu13", "cuda_runtime")]
    return [str(place) for place in places if (place / "cuda_fp16.h").is_file()]


def summarise_nvrtc(log: str) -> str:
    """The first three errors, "line 3: ...", at most 600 characters."""
    found = re.findall(r"^kernel\.cu\((\d+)\): (?:catastrophic )?error: (.*)$", log, re.M)
    if found:
        return "; ".join(f"line {line}: {what}" for line, what in found[:3])[:600]
    lines = [line for line in log.splitlines() if "error" in line] or [
        line for line in log.splitlines() if line.strip()
    ]
    return " / ".join(lines[:3])[:600] or "NVRTC failed without a message"


_compiler: Callable[[str, tuple[str, ...]], Any] = compile_locally


def set_compiler(compile_source: Callable[[str, tuple[str, ...]], Any]) -> None:
    """Replace how source text becomes a cupy.RawModule: inside a jail the judge is asked."""
    global _compiler
    _compiler = compile_source
