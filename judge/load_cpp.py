"""C++ kernels without torch's headers: g++ takes a third of a second instead of forty.

    kernel = load_cpp('extern "C" void scale(const float* x, float* y, long n, float s) {...}')
    kernel.scale(x, y, x.numel(), 2.0)

The declared parameters of each ``extern "C"`` function are read from the source: tensors go as pointers, after their
dtype, contiguity and device were checked; Python numbers are converted to the declared type; a mismatch is a
SignatureError before the call. torch is not imported here: whoever passes a tensor has it.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from judge.c_declarations import Parameter as Parameter
from judge.c_declarations import parse_functions as parse_functions
from judge.errors import SignatureError
from warpsmith import WarpsmithError


class CompileError(WarpsmithError):
    """The compiler refused a kernel's source; the text holds its first errors with line numbers of that source."""


_CASTS = {
    "float32": "float()",
    "float64": "double()",
    "float16": "half()",
    "bfloat16": "bfloat16()",
    "int16": "short()",
    "int32": "int()",
    "int64": "long()",
    "bool": "bool()",
}
"""dtype -> the method that makes a tensor of it."""


class CppFunction:
    """One function of a CppModule."""

    def __init__(self, name: str, parameters: Sequence[Parameter], symbol: Any) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._call = symbol
        self._call.restype = None
        self._call.argtypes = [ctypes.c_void_p if p.scalar is None else p.scalar for p in self.parameters]
        self._converters = tuple(
            (pointer_converter if p.scalar is None else number_converter)(
                f"{name}: argument {i} ({p.name}, {p.declared})", p
            )
            for i, p in enumerate(self.parameters, start=1)
        )
        self._count = len(self._converters)

    def __call__(self, *arguments: Any) -> None:
        """Calls the kernel; returns when it has run. None goes as a null pointer.

        Raises:
            SignatureError: count, dtype, contiguity or device of the arguments differ from what is declared.
        """
        if len(arguments) != self._count:
            wanted = ", ".join(f"{p.declared} {p.name}" for p in self.parameters)
            raise SignatureError(f"{self.name} takes {self._count} arguments ({wanted}), got {len(arguments)}")
        self._call(*[convert(argument) for convert, argument in zip(self._converters, arguments, strict=True)])


def pointer_converter(where: str, parameter: Parameter, device: str = "cpu") -> Callable[[Any], int | None]:
    """From a tensor to its address. Kernels may take microseconds: a dtype that was right once is told by identity."""
    seen: Any = _UNSEEN
    on_device = f"is_{device}"

    def convert(argument: Any) -> int | None:
        nonlocal seen
        if argument is None:
            return None
        try:
            if argument.dtype is seen and getattr(argument, on_device) and argument.is_contiguous():
                return argument.data_ptr()  # type: ignore[no-any-return]
        except AttributeError:
            pass
        if wrong := _wrong_tensor(argument, parameter, device):
            raise SignatureError(f"{where} {wrong}")
        seen = argument.dtype
        return argument.data_ptr()  # type: ignore[no-any-return]

    return convert


_UNSEEN = object()


def _wrong_tensor(argument: Any, parameter: Parameter, device: str) -> str:
    """What is wrong with an argument for a pointer, and what to do; empty when nothing is."""
    if not hasattr(argument, "data_ptr"):
        return f"is {_shown(argument)}; pass a tensor"
    # A copy helps for an input only: what is written to the copy of an output is lost.
    name = parameter.name if parameter.is_const and parameter.name.isidentifier() else ""
    dtype = str(argument.dtype).removeprefix("torch.")
    if parameter.pointee and dtype != parameter.pointee:
        cast = _CASTS.get(parameter.pointee, f"to(torch.{parameter.pointee})")
        return f"is a {dtype} tensor; pass {f'{name}.{cast}' if name else f'a {parameter.pointee} one'}"
    if argument.device.type != device:
        kind = device if device == "cpu" else "GPU"
        return f"is on {argument.device}; pass {f'{name}.{device}()' if name else f'a {kind.upper()} tensor'}"
    if not argument.is_contiguous():
        return f"is not contiguous; pass {f'{name}.contiguous()' if name else 'a contiguous tensor'}"
    return ""


def number_converter(where: str, parameter: Parameter) -> Callable[[Any], int | float]:
    """From a Python number to one that the declared type holds."""

    def convert_float(argument: Any) -> float:
        if type(argument) is float:
            return argument
        if hasattr(argument, "data_ptr") or not (hasattr(argument, "__float__") or hasattr(argument, "__index__")):
            raise SignatureError(f"{where} is {_shown(argument)}; pass a number")
        return float(argument)

    if parameter.scalar in (ctypes.c_float, ctypes.c_double):
        return convert_float
    least, most = _integer_range(parameter.scalar)

    def convert_integer(argument: Any) -> int:
        if type(argument) is int and least <= argument <= most:
            return argument
        if hasattr(argument, "data_ptr") or not hasattr(argument, "__index__"):
            raise SignatureError(f"{where} is {_shown(argument)}; pass an integer such as x.numel()")
        value: int = argument.__index__()
        if not least <= value <= most:
            raise SignatureError(f"{where} is {value}, which does not fit in {parameter.declared}")
        return value

    return convert_integer


def _integer_range(scalar: Any) -> tuple[int, int]:
    if scalar is ctypes.c_bool:
        return 0, 1
    values = 1 << 8 * ctypes.sizeof(scalar)
    return (-values // 2, values // 2 - 1) if scalar(-1).value < 0 else (0, values - 1)


def _shown(argument: Any) -> str:
    if hasattr(argument, "data_ptr"):
        return "a tensor"
    return f"{argument!r:.40}" if isinstance(argument, int | float | str) else f"a {type(argument).__name__}"


class CppModule:
    """The compiled source; each ``extern "C"`` function is an attribute."""

    def __init__(self, path: str, functions: dict[str, tuple[Parameter, ...]]) -> None:
        library = ctypes.CDLL(path)
        self._library = library
        for name, parameters in functions.items():
            setattr(self, name, CppFunction(name, parameters, getattr(library, name)))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f'the source defines no extern "C" function {name!r}')


def load_cpp(source: str) -> CppModule:
    """Compile C++ source (C++17, OpenMP, ``-O3 -march=native``) and load its ``extern "C"`` functions.

    Raises:
        CompileError: the compiler's first errors.
        SignatureError: a declaration that Python cannot call.
    """
    functions = parse_functions(source)
    return CppModule(_compiler(source), functions)


def compile_command(source_path: str, out_path: str, cxx: str, flags: Sequence[str]) -> list[str]:
    """The compiler's command line; the source is given its language, so any file name will do."""
    return [cxx, *flags, "-x", "c++", source_path, "-o", out_path]


def summarise_errors(stderr: str, source_path: str = "kernel.cpp") -> str:
    """The first three errors, "line 3: ...", at most 600 characters: short enough to go back to a model.

    Lines are those of the source. An error inside a header (a wrong use of a template) is given the line of the source
    that led there, where the compiler names it.
    """
    source = re.escape(Path(source_path).name)
    found = []
    line = ""
    for text in stderr.splitlines():
        if led := re.match(rf"(?:In file included from )?(?:[^\s:]*/)?{source}:(\d+)[:,]", text):
            line = led[1]
        elif text.startswith("In file included from "):
            line = ""
        if error := re.match(r"(?P<file>[^\n:]*):\d+:(?:\d+:)? (?:fatal )?error: (?P<what>.*)", text):
            found.append(f"line {line}: {error['what']}" if line else f"{Path(error['file']).name}: {error['what']}")
    if found:
        return "; ".join(found[:3])[:600]
    lines = [text.replace(source_path, "source") for text in stderr.splitlines() if text.strip()]
    return " / ".join(lines[-3:])[:600] or "the compiler failed without a message"


def compile_locally(source: str) -> str:
    """Compile outside a judge, into a private cache by content; returns the path of the shared object.

    Raises:
        CompileError: the compiler's first errors; no compiler; a cache that others could write to.
    """
    from judge.settings import JudgeSettings

    settings = JudgeSettings()
    wanted = os.environ.get("CXX", settings.cxx)
    cxx = shutil.which(wanted)
    if cxx is None:
        raise CompileError(f"no {wanted} on PATH: install a C++ compiler (Debian: apt-get install g++)")
    folder = _private_folder()
    key = hashlib.sha256("\0".join([_machine(cxx), *settings.cxx_flags, source]).encode(errors="replace")).hexdigest()
    target = folder / f"{key[:32]}.so"
    if target.exists():
        return str(target)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source_path, out_path = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        source_path.write_text(source, encoding="utf-8", errors="replace")
        try:
            done = subprocess.run(
                compile_command(str(source_path), str(out_path), cxx, settings.cxx_flags),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=settings.compile_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise CompileError(f"the compiler did not finish in {settings.compile_seconds:g} s") from None
        if done.returncode != 0:
            raise CompileError(summarise_errors(done.stderr, str(source_path)))
        out_path.replace(target)
    return str(target)


def _private_folder() -> Path:
    home = Path(os.environ.get("WARPSMITH_HOME", Path.home() / ".cache" / "warpsmith"))
    folder = home / "cpp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    state = folder.stat()
    if state.st_uid != os.geteuid() or state.st_mode & 0o022:
        raise CompileError(f"{folder} is not this user's alone: chmod 700 it, or set WARPSMITH_HOME to another folder")
    return folder


def _machine(cxx: str) -> str:
    """What a shared object depends on besides its source: the compiler, and the processor (``-march=native``), since
    a home folder may be shared by machines with different ones."""
    compiler = Path(cxx).resolve()
    try:
        cpu = next(
            (x for x in Path("/proc/cpuinfo").read_text().splitlines() if x.startswith(("flags", "Features"))), ""
        )
    except OSError:
        cpu = ""
    return f"{compiler} {compiler.stat().st_mtime_ns} {cpu}"


_compiler: Callable[[str], str] = compile_locally


def set_compiler(compile_source: Callable[[str], str]) -> None:
    """Replace how source text becomes the path of a shared object: inside a jail the judge is asked."""
    global _compiler
    _compiler = compile_source
