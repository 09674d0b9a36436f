"""The hack database as data (judge/hacks.toml): kinds of cheating, and rules that mark a candidate's text.

A mark never decides: evaluators that decide by patterns reject honest kernels and let the rest through (KernelBench's
checker: 3 of 3 honest snippets rejected, 12 evasions passed). What each kind is really stopped by is said beside it.
"""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("hacks.toml")

# Comments and strings of C++ in one pass: an unclosed one ends with the line or the text, so no place is read twice.
_CPP_PARTS = re.compile(r'"(?:\\.|[^"\\\n])*+(?:"|\n|\Z)?|//[^\n]*+|/\*.*?(?:\*/|\Z)', re.S)
_IS_CPP = re.compile(r'extern\s+"C"|__global__|#\s*include|PYBIND11_MODULE')


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A way of cheating."""

    number: int
    name: str
    stopped_by: str
    """The layer of the judge that stops it."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What in a text hints at some kinds; hacks.toml says what its parts mean."""

    id: str
    mark: str
    kinds: tuple[int, ...]
    explanation: str
    source: str
    names: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()
    kernel: re.Pattern[str] | None = None
    also: re.Pattern[str] | None = None
    text: re.Pattern[str] | None = None

    def marks(self, seen: Seen) -> bool:
        return bool(
            self.names & seen.names
            or self.words & seen.words
            or (self.kernel and self._found_in_kernel(self.kernel, seen))
            or (self.text and any(map(self.text.search, seen.strings)))
        )

    def _found_in_kernel(self, pattern: re.Pattern[str], seen: Seen) -> bool:
        return any(pattern.search(text) and (not self.also or self.also.search(text)) for text in seen.kernels)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What rules look at."""

    names: frozenset[str]
    """Dotted names in full."""
    words: frozenset[str]
    """Functions that are defined, attributes that are used."""
    kernels: tuple[str, ...]
    """C++ and CUDA text without its comments."""
    strings: tuple[str, ...]
    """All strings but docstrings, comments of kernels taken out."""


@functools.cache
def kinds() -> dict[int, Kind]:
    """By number."""
    return {row["number"]: Kind(**row) for row in _data()["kind"]}


@functools.cache
def rules() -> tuple[Rule, ...]:
    """In the file's order."""
    return tuple(_rule(**row) for row in _data()["rule"])


def _rule(**row: Any) -> Rule:
    parts: dict[str, Any] = {key: re.compile(row.pop(key)) for key in ("kernel", "also", "text") if key in row}
    parts |= {key: frozenset(row.pop(key, ())) for key in ("names", "words")}
    return Rule(kinds=tuple(row.pop("kinds")), **row, **parts)


def look_at(tree: ast.AST, names: frozenset[str]) -> Seen:
    """What a syntax tree shows; ``names`` are its dotted names, imports undone."""
    docstrings = {id(node) for node in _docstrings(tree)}
    words: set[str] = set()
    kernels: list[str] = []
    strings: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            words.add(node.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            text = node.value
            if _IS_CPP.search(text):
                text = without_comments(text)
                kernels.append(text)
            strings.append(text)
    return Seen(names=names, words=frozenset(words), kernels=tuple(kernels), strings=tuple(strings))


def without_comments(source: str) -> str:
    """C++ text with each comment as one space."""
    return _CPP_PARTS.sub(lambda match: match[0] if match[0][0] == '"' else " ", source)


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr):
                yield first.value


@functools.cache
def _data() -> dict[str, list[dict[str, Any]]]:
    return tomllib.loads(FILE.read_text(encoding="utf-8"))
