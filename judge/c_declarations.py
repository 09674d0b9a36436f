"""The parameters that the ``extern "C"`` functions of a C++ source declare, read from its text.

Covered: single definitions and blocks, prototypes whose definition follows without the keyword, macros and aliases
that stand for ``extern "C"`` or for a number type, qualifiers, default values, comments, strings. Not covered: other
macros, function pointers as parameters, functions in a namespace inside a block.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any

from judge.errors import SignatureError

_NAMED_TYPES = {
    "void": "",
    "bool": "bool",
    "float": "float32",
    "double": "float64",
    "_Float16": "float16",
    "__bf16": "bfloat16",
    # CUDA's; vectors are views of a tensor of their parts
    "half": "float16",
    "__half": "float16",
    "__half2": "float16",
    "half2": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_bfloat162": "bfloat16",
    **{f"{name}{count}": dtype for name, dtype in (("float", "float32"), ("int", "int32")) for count in (2, 3, 4)},
    **{f"double{count}": "float64" for count in (2, 3, 4)},
    **{f"uint{count}": "" for count in (2, 3, 4)},
    "size_t": "uint64",
    "uintptr_t": "uint64",
    "ptrdiff_t": "int64",
    "ssize_t": "int64",
    "intptr_t": "int64",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""C++ type -> name of the torch dtype with its layout; "" is none in particular. (LP64: a long has 64 bits.)"""

_INTEGER_WORDS = frozenset({"signed", "unsigned", "char", "short", "int", "long"})
_SCALARS: dict[str, Any] = {
    "float32": ctypes.c_float,
    "float64": ctypes.c_double,
    "bool": ctypes.c_bool,
    **{f"{sign}int{bits}": getattr(ctypes, f"c_{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""torch dtype -> the ctypes type of one such number; the others go by pointer only."""

_TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<string>R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*")
      | (?P<character>(?<!\w)'(?:\\.|[^'\\\n])+')""",
    re.S | re.X,
)
_DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
_EXTERN_MACRO = re.compile(r'^[ \t]*#[ \t]*define[ \t]+(\w+)[ \t]+extern[ \t]*"C"', re.M)
_ALIAS = re.compile(
    r"\busing\s+(?P<new>\w+)\s*=\s*(?P<old>[\w\s:]+);|\btypedef\s+(?P<from>[\w\s:]+?)\s+(?P<to>\w+)\s*;"
)
_FUNCTION = re.compile(
    r"(?P<type>[A-Za-z_][\w:\s*]*?[\s*])(?P<name>[A-Za-z_]\w*)\s*\((?P<parameters>[^()]*)\)"
    r"\s*(?:noexcept\s*)?(?:->\s*\w+\s*)?(?P<end>[{;])"
)
_QUALIFIER = re.compile(r"\b(?:const|volatile|restrict|__restrict__|__restrict|struct|register)\b|\bstd::|::")


@dataclass(frozen=True)
class Parameter:
    """One declared parameter of a kernel function."""

    name: str
    """"#2" for the second where the declaration gives none."""
    declared: str
    """As written, other qualifiers than const dropped: "const float*", "long"."""
    pointee: str | None
    """torch dtype that the tensor must have, "" for any; None for a number."""
    scalar: Any
    """ctypes type of a number; None for a pointer."""
    is_const: bool = False
    """Whether it points at what the kernel only reads: an input."""


def parse_functions(source: str) -> dict[str, tuple[Parameter, ...]]:
    """The ``extern "C"`` functions that a source defines (not the static or inline ones), with their parameters.

    Raises:
        SignatureError: a parameter's type is none that Python can pass, or there is no such function.
    """
    text = _plain(source)
    aliases = {
        (found["new"] or found["to"]): (found["old"] or found["from"]).split() for found in _ALIAS.finditer(text)
    }
    functions: dict[str, tuple[Parameter, ...]] = {}
    for region in _extern_c_regions(text):
        for match in _FUNCTION.finditer(region):
            name = match["name"]
            if {"static", "inline"} & set(match["type"].split()):
                continue
            if match["end"] == ";" and not re.search(rf"\b{name}\s*\([^()]*\)\s*(?:noexcept\s*)?\{{", text):
                continue
            functions[name] = tuple(
                _parameter(name, number, written, aliases)
                for number, written in enumerate(_split_parameters(match["parameters"]), start=1)
            )
    if not functions:
        raise SignatureError('the source defines no extern "C" function: write extern "C" void name(...) {...}')
    return functions


def _plain(source: str) -> str:
    """Without comments, directives, attributes and the contents of literals, all of which may hold any bracket."""
    text = _TOKEN.sub(_without_literal, source)
    macros = _EXTERN_MACRO.findall(text)
    text = re.sub(r"\[\[.*?\]\]", " ", _DIRECTIVE.sub("", text), flags=re.S)
    return re.sub(rf"\b(?:{'|'.join(macros)})\b", 'extern "C" ', text) if macros else text


def _without_literal(token: re.Match[str]) -> str:
    if token["comment"] is not None:
        return " "
    return token[0] if token[0] == '"C"' else '""'


def _extern_c_regions(text: str) -> list[str]:
    """Text of each extern "C" block, and of each single declaration up to its semicolon or opening brace."""
    regions = []
    for match in re.finditer(r'\bextern\s*"C"\s*', text):
        rest = text[match.end() :]
        if rest.startswith("{"):
            regions.append(_top_level(rest[1:]))
        elif end := re.search(r"[;{]", rest):
            regions.append(rest[: end.end()])
    return regions


def _top_level(text: str) -> str:
    """What stands between a brace and its partner, inner bodies emptied, so that only declarations remain."""
    depth, start, kept = 0, 0, []
    for brace in re.finditer(r"[{}]", text):
        if brace[0] == "{":
            if depth == 0:
                kept.append(text[start : brace.end()])
            depth += 1
        elif depth == 0:
            return "".join([*kept, text[start : brace.start()]])
        else:
            depth -= 1
            start = brace.start()
    return "".join([*kept, text[start:]])


def _split_parameters(text: str) -> list[str]:
    text = text.strip()
    return [] if text in ("", "void") else [part.partition("=")[0].strip() for part in text.split(",")]


def _parameter(function: str, number: int, written: str, aliases: dict[str, list[str]]) -> Parameter:
    pointee, *stars = re.sub(r"\[[^\]]*\]", " * ", written).split("*")
    words = _QUALIFIER.sub(" ", f"{pointee} {' '.join(stars)}").split()
    name = words.pop() if len(words) > 1 and not _is_type(words[-1]) else f"#{number}"
    if len(words) == 1:
        words = _QUALIFIER.sub(" ", " ".join(aliases.get(words[0], words))).split()
    kind = _kind(words)
    if kind is None or len(stars) > 1 or (not stars and (kind not in _SCALARS or words[-1][-1:] in "234")):
        raise SignatureError(
            f"{function}: parameter {number} ({' '.join(written.split())}) cannot be passed from Python: use a "
            "pointer to float, double, an integer type, bool or void, or a number"
        )
    if not stars:
        return Parameter(name, " ".join(words), None, _SCALARS[kind])
    is_const = re.search(r"\bconst\b", pointee) is not None
    return Parameter(name, f"{'const ' if is_const else ''}{' '.join(words)}*", kind, None, is_const)


def _is_type(word: str) -> bool:
    return word in _INTEGER_WORDS or word in _NAMED_TYPES


def _kind(words: list[str]) -> str | None:
    """torch dtype name of a type given by its words ("unsigned long int"); None for any that Python cannot pass."""
    if len(words) == 1 and words[0] in _NAMED_TYPES:
        return _NAMED_TYPES[words[0]]
    if not words or not _INTEGER_WORDS.issuperset(words):
        return None
    if "char" in words:
        return "int8" if "signed" in words else "uint8"
    bits = 16 if "short" in words else 64 if "long" in words else 32
    return f"{'u' if 'unsigned' in words else ''}int{bits}"
