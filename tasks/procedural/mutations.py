"""Kernels broken in the ways in which models break them, for samples that teach to mend."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tasks.procedural.kernels import Kernel


@dataclass(frozen=True, kw_only=True)
class Broken:
    """A candidate with one fault."""

    fault: str
    """What was done to it; a key of FAULTS."""
    code: str
    explanation: str
    """One sentence: what is wrong and what mends it."""


def broken(kernel: Kernel, rng: random.Random) -> Iterator[Broken]:
    """Variants of a kernel with one fault each, in a random order. The judge may find one that is still right."""
    order = list(FAULTS)
    rng.shuffle(order)
    for fault in order:
        made = FAULTS[fault](kernel.code, rng)
        if made is not None and made[0] != kernel.code:
            yield Broken(fault=fault, code=made[0], explanation=made[1])


_Made = tuple[str, str] | None
_STATEMENT = re.compile(r"^ {4,}(?:float )?\w+(?:\[[^\]=]*\])* \+?= .*;$", re.M)
"""A line of the kernel that computes something."""
_WORDS = re.compile(r"\b(v|w|p|q|e|s|s2|m|m2|k|k2|u)\b")


def _missing_semicolon(code: str, rng: random.Random) -> _Made:
    found = list(_STATEMENT.finditer(code))
    if not found:
        return None
    one = rng.choice(found)
    line = one[0].strip()
    return code[: one.end() - 1] + code[one.end() :], f"A semicolon is missing after `{line[:-1]}`."


def _wrong_operator(code: str, rng: random.Random) -> _Made:
    others = {" + ": " - ", " - ": " + ", " * ": " + ", " / ": " * ", "fmaxf(": "fminf(", "fminf(": "fmaxf("}
    return _changed(code, rng, re.compile("|".join(re.escape(text) for text in others)), lambda text: others[text])


def _wrong_number(code: str, rng: random.Random) -> _Made:
    return _changed(code, rng, re.compile(r"\b\d+\.\d*f\b"), lambda text: "2.f" if text != "2.f" else "1.f")


def _wrong_variable(code: str, rng: random.Random) -> _Made:
    return _changed(code, rng, _WORDS, lambda text: rng.choice([x for x in ("v", "w", "p", "k", "s") if x != text]))


def _changed(code: str, rng: random.Random, wanted: re.Pattern[str], other: Callable[[str], str]) -> _Made:
    """One occurrence on the right side of a computing line is replaced."""
    places = []
    for line in _STATEMENT.finditer(code):
        right = line[0].index("= ") + 2
        places += [(line, found) for found in wanted.finditer(line[0], right)]
    if not places:
        return None
    line, found = rng.choice(places)
    start = line.start() + found.start()
    text = other(found[0])
    made = code[:start] + text + code[start + len(found[0]) :]
    wrong = line[0][: found.start()] + text + line[0][found.end() :]
    return made, f"`{wrong.strip()}` is wrong, it must be `{line[0].strip()}`."


def _past_the_end(code: str, rng: random.Random) -> _Made:
    """A loop that goes one too far, or a block that does not end where the data does."""
    cut = list(re.finditer(r"(\w+ - \w+) < (\d+) \? \1 : \2", code))
    if cut:
        one = rng.choice(cut)
        made = code[: one.start()] + one[2] + code[one.end() :]
        return made, f"The last block goes past the end: its length must be `{one[0]}`."
    bounds = list(re.finditer(r"if \((\w+) < (\w+)\) |(?<=; )(\w+) < (rows|cols|n|inner)(?=;)", code))
    if not bounds:
        return None
    one = rng.choice(bounds)
    if one[3]:
        made = code[: one.start()] + f"{one[3]} <= {one[4]}" + code[one.end() :]
        return made, f"The loop goes one past the end: it must end at `{one[3]} < {one[4]}`."
    return code[: one.start()] + code[one.end() :], f"The check `{one[0].strip()}` is missing."


def _wrong_start(code: str, rng: random.Random) -> _Made:
    found = list(re.finditer(r"(?<== )(-?1e38f|0\.f|0)(?=;)", code))
    if not found:
        return None
    one = rng.choice(found)
    other = "0.f" if "1e38" in one[0] else "1.f"
    made = code[: one.start()] + other + code[one.end() :]
    return made, f"The reduction starts from {other}, it must start from {one[0]}."


def _undeclared(code: str, rng: random.Random) -> _Made:
    """The variable's declaration loses its type."""
    found = list(re.finditer(r"(?<=^)( +)(?:float|double|long|int) (?=\w+(?: = |\[))", code, re.M))
    if not found:
        return None
    one = rng.choice(found)
    line = code[one.start() : code.index("\n", one.start())].strip()
    return code[: one.start()] + one[1] + code[one.end() :], f"The declaration `{line}` lost its type."


def _argument_missing(code: str, rng: random.Random) -> _Made:
    call = re.search(r"kernels?\.\w+\((.*)\)$", code, re.M)
    if call is None or ", " not in call[1]:
        return None
    kept, _, dropped = call[1].rpartition(", ")
    made = code[: call.start(1)] + kept + code[call.end(1) :]
    return made, f"The call lacks its last argument, `{dropped}`."


def _function_missing(code: str, rng: random.Random) -> _Made:
    """A function that the kernel calls is not there."""
    found = list(
        re.finditer(r"^(?:static inline|__device__(?: __forceinline__)?) \w+ (\w+)\(.*?^\}\n", code, re.M | re.S)
    )
    if not found:
        return None
    one = rng.choice(found)
    return code[: one.start()] + code[one.end() :], f"The function {one[1]} is called and not defined."


FAULTS: dict[str, Callable[[str, random.Random], _Made]] = {
    "missing semicolon": _missing_semicolon,
    "wrong operator": _wrong_operator,
    "wrong number": _wrong_number,
    "wrong variable": _wrong_variable,
    "past the end": _past_the_end,
    "wrong start": _wrong_start,
    "undeclared variable": _undeclared,
    "argument missing": _argument_missing,
    "function missing": _function_missing,
}
