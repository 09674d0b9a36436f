"""C++ kernels without torch's headers: g++ takes a third of a second instead of forty.

    kernel = load_cpp('extern "C" void scale(const float* x, float* y, long n, float s) {...}')
    kernel.scale(x, y, x.numel(), 2.0)

The declared parameters of each ``extern "C"`` function are read from the source: tensors go as pointers, after their
dtype, contiguity and device were checked; Python numbers are converted to the declared type; a mismatch is a
SignatureError before the call.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judge.errors import SignatureError
from warpsmith import WarpsmithError


class CompileError(WarpsmithError):
    """The compiler refused a kernel's source; the text holds its first errors with line numbers of that source."""


_POINTEES = {
    "float": "float32",
    "double": "float64",
    "int": "int32",
    "int32_t": "int32",
    "long": "int64",
    "longlong": "int64",
    "int64_t": "int64",
    "short": "int16",
    "int16_t": "int16",
    "signedchar": "int8",
    "int8_t": "int8",
    "unsignedchar": "uint8",
    "uint8_t": "uint8",
    "char": "uint8",
    "bool": "bool",
    "void": "",
}
"""C type a pointer points at -> torch dtype it needs; "" takes any."""

_SCALARS: dict[str, Any] = {
    "float": ctypes.c_float,
    "double": ctypes.c_double,
    "bool": ctypes.c_bool,
    "char": ctypes.c_char,
    "short": ctypes.c_short,
    "int": ctypes.c_int,
    "unsigned": ctypes.c_uint,
    "unsignedint": ctypes.c_uint,
    "long": ctypes.c_long,
    "longint": ctypes.c_long,
    "unsignedlong": ctypes.c_ulong,
    "longlong": ctypes.c_longlong,
    "unsignedlonglong": ctypes.c_ulonglong,
    "int8_t": ctypes.c_int8,
    "uint8_t": ctypes.c_uint8,
    "int16_t": ctypes.c_int16,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "int64_t": ctypes.c_int64,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "ptrdiff_t": ctypes.c_ssize_t,
    "ssize_t": ctypes.c_ssize_t,
}
_QUALIFIERS = re.compile(r"\b(?:const|volatile|restrict|__restrict__|__restrict|struct|register|std::)\b|std::")
_FUNCTION = re.compile(r"(?P<type>[A-Za-z_][\w:\s*]*?[\s*])(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^()]*)\)\s*\{")


@dataclass(frozen=True)
class Parameter:
    """One declared parameter of a kernel function."""

    name: str
    declared: str
    """As written, qualifiers dropped: "float*", "long"."""
    pointee: str | None
    """torch dtype that the tensor must have, "" for any; None for a number."""
    scalar: Any
    """ctypes type of a number; None for a pointer."""


def parse_functions(source: str) -> dict[str, tuple[Parameter, ...]]:
    """The ``extern "C"`` functions that a source defines, with their parameters.

    Raises:
        SignatureError: a parameter's type is none that Python can pass, or there is no such function.
    """
    text = _without_comments(source)
    functions: dict[str, tuple[Parameter, ...]] = {}
    for region in _extern_c_regions(text):
        for match in _FUNCTION.finditer(region):
            name = match["name"]
            functions[name] = tuple(
                _parameter(name, number, written)
                for number, written in enumerate(_split_parameters(match["parameters"]), start=1)
            )
    if not functions:
        raise SignatureError('the source defines no extern "C" function: write extern "C" void name(...) {...}')
    return functions


def _without_comments(source: str) -> str:
    text = re.sub(r"/\*.*?\*/", " ", source, flags=re.S)
    return re.sub(r"//[^\n]*|^\s*#[^\n]*", " ", text, flags=re.M)


def _extern_c_regions(text: str) -> list[str]:
    """Text of each extern "C" block, and of each single definition with its opening brace."""
    regions = []
    for match in re.finditer(r'extern\s*"C"\s*', text):
        rest = text[match.end() :]
        if rest.startswith("{"):
            regions.append(_top_level(rest[1:]))
        elif (brace := rest.find("{")) >= 0 and ";" not in rest[:brace]:
            regions.append(rest[: brace + 1])
    return regions


def _top_level(text: str) -> str:
    """What stands between a brace and its partner, inner bodies emptied, so that only definitions remain."""
    depth, kept = 0, []
    for character in text:
        if character == "}":
            if depth == 0:
                break
            depth -= 1
        if depth == 0:
            kept.append(character)
        if character == "{":
            depth += 1
    return "".join(kept)


def _split_parameters(text: str) -> list[str]:
    text = text.strip()
    return [] if text in ("", "void") else [part.strip() for part in text.split(",")]


def _parameter(function: str, number: int, written: str) -> Parameter:
    plain = _QUALIFIERS.sub(" ", written).replace("[]", "*")
    stars = plain.count("*")
    words = plain.replace("*", " ").replace("&", " & ").split()
    name = words.pop() if len(words) > 1 else f"#{number}"
    kind = "".join(words)
    if "&" not in words and stars == 1 and kind in _POINTEES:
        return Parameter(name, f"{' '.join(words)}*", _POINTEES[kind], None)
    if "&" not in words and stars == 0 and kind in _SCALARS:
        return Parameter(name, " ".join(words), None, _SCALARS[kind])
    raise SignatureError(
        f"{function}: parameter {number} ({written}) cannot be passed from Python: use a pointer to "
        "float, double, an integer type, bool or void, or a number"
    )


class CppFunction:
    """One function of a CppModule."""

    def __init__(self, name: str, parameters: Sequence[Parameter], address: Any) -> None:
        self.name = name
        self.parameters = tuple(parameters)
        self._call = address
        self._call.restype = None
        self._call.argtypes = [p.scalar if p.scalar is not None else ctypes.c_void_p for p in self.parameters]

    def __call__(self, *arguments: Any) -> None:
        """Calls the kernel; returns when it has run.

        Raises:
            SignatureError: count, dtype, contiguity or device of the arguments differ from what is declared.
        """
        if len(arguments) != len(self.parameters):
            wanted = ", ".join(f"{p.declared} {p.name}" for p in self.parameters)
            raise SignatureError(f"{self.name} takes {len(self.parameters)} arguments ({wanted}), got {len(arguments)}")
        self._call(
            *[_convert(self.name, i, p, a) for i, (p, a) in enumerate(zip(self.parameters, arguments, strict=True))]
        )


def _convert(function: str, index: int, parameter: Parameter, argument: Any) -> Any:
    if parameter.scalar is None:
        if argument is None:
            return None
        pointer = getattr(argument, "data_ptr", None)
        if pointer is None:
            raise _mismatch(function, index, parameter, f"is {_article(argument)}; pass a tensor")
        dtype = str(argument.dtype).removeprefix("torch.")
        if parameter.pointee and dtype != parameter.pointee:
            raise _mismatch(function, index, parameter, f"is a {dtype} tensor; pass a {parameter.pointee} one")
        if argument.device.type != "cpu":
            raise _mismatch(function, index, parameter, f"is on {argument.device}; pass a CPU tensor")
        if not argument.is_contiguous():
            raise _mismatch(function, index, parameter, "is not contiguous; pass x.contiguous()")
        return pointer()
    if hasattr(argument, "data_ptr"):
        raise _mismatch(function, index, parameter, "is a tensor; pass a number such as x.numel()")
    if parameter.scalar in (ctypes.c_float, ctypes.c_double):
        try:
            return float(argument)
        except (TypeError, ValueError):
            raise _mismatch(function, index, parameter, f"is {_article(argument)}; pass a number") from None
    if isinstance(argument, float) or not hasattr(argument, "__index__"):
        raise _mismatch(function, index, parameter, f"is {_article(argument)}; pass an integer")
    value = argument.__index__()
    converted = parameter.scalar(value).value
    if converted != value and parameter.scalar is not ctypes.c_char:
        raise _mismatch(function, index, parameter, f"is {value}, which does not fit in {parameter.declared}")
    return value


def _article(argument: Any) -> str:
    return f"{argument!r:.40}" if isinstance(argument, int | float | str) else f"a {type(argument).__name__}"


def _mismatch(function: str, index: int, parameter: Parameter, what: str) -> SignatureError:
    return SignatureError(f"{function}: argument {index + 1} ({parameter.name}, {parameter.declared}) {what}")


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


def summarise_errors(stderr: str, source_path: str = "") -> str:
    """The first three errors, "line 3: ...", at most 600 characters: short enough to go back to a model."""
    found = re.findall(r"^[^\n:]*:(\d+):(?:\d+:)? (?:fatal )?error: ([^\n]*)", stderr, flags=re.M)
    if found:
        return "; ".join(f"line {line}: {what}" for line, what in found[:3])[:600]
    lines = [
        line.replace(source_path, "source") if source_path else line for line in stderr.splitlines() if line.strip()
    ]
    return " / ".join(lines[-3:])[:600] or "the compiler failed without a message"


def compile_locally(source: str) -> str:
    """Compile outside a judge, into a private cache by content; returns the path of the shared object."""
    from judge.settings import JudgeSettings

    settings = JudgeSettings()
    cxx = os.environ.get("CXX", settings.cxx)
    home = Path(os.environ.get("WARPSMITH_HOME", Path.home() / ".cache" / "warpsmith"))
    folder = home / "cpp"
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = hashlib.sha256("\0".join([cxx, *settings.cxx_flags, source]).encode()).hexdigest()[:32]
    target = folder / f"{key}.so"
    if target.exists():
        return str(target)
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        source_path, out_path = Path(scratch) / "kernel.cpp", Path(scratch) / "kernel.so"
        source_path.write_text(source)
        try:
            done = subprocess.run(
                compile_command(str(source_path), str(out_path), cxx, settings.cxx_flags),
                capture_output=True,
                text=True,
                errors="replace",
                timeout=settings.compile_seconds,
                check=False,
            )
        except FileNotFoundError:
            raise CompileError(f"no {cxx} on PATH: install a C++ compiler (Debian: apt-get install g++)") from None
        except subprocess.TimeoutExpired:
            raise CompileError(f"the compiler did not finish in {settings.compile_seconds:g} s") from None
        if done.returncode != 0:
            raise CompileError(summarise_errors(done.stderr, str(source_path)))
        out_path.replace(target)
    return str(target)


_compiler: Callable[[str], str] = compile_locally


def set_compiler(compile_source: Callable[[str], str]) -> None:
    """Replace how source text becomes the path of a shared object: inside a jail the judge is asked."""
    global _compiler
    _compiler = compile_source
