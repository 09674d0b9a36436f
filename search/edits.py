"""Answers that change a kernel instead of writing it anew: search/replace blocks.

    <<<<<<< SEARCH
    lines of the kernel, found there once
    =======
    lines in their place
    >>>>>>> REPLACE

Blocks are applied one after the other, all or none. Nothing is guessed: text that is not there, or is there twice, is
the reason why there is no candidate. Differences in blanks at line ends, and in the indent of the whole block, are
passed over, since models lose them often.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from search.parser import check_code, parse, without_thinking
from search.types import Parsed

MAX_BLOCKS = 50
"""More edits than this are refused: then the whole file is shorter."""

_MARKS = (re.compile(r"<{5,9} ?SEARCH\s*"), re.compile(r"={5,9}\s*"), re.compile(r">{5,9} ?REPLACE\s*"))


@dataclass(frozen=True)
class Edit:
    """Whole lines to find and those to put in their place."""

    search: tuple[str, ...]
    replace: tuple[str, ...]


def parse_edit(text: str, base: str) -> Parsed:
    """The candidate that an answer's edits make of `base`. Never raises; `reason` is one line.

    An answer that holds no edit but a whole file with ModelNew is taken as that file, and says so in its notes.
    """
    whole = parse(text)
    edits, reason = find_edits(text)
    if not edits and not reason:
        if whole.candidate is not None:
            return replace(whole, notes=(*whole.notes, "a whole file in place of edits"))
        return replace(whole, reason="no edit: no line <<<<<<< SEARCH")
    code = base
    if not reason:
        code, reason = apply_edits(base, edits)
    if not reason and code == base:
        reason = "the edits change nothing"
    candidate, fault = check_code(code) if not reason else (None, reason)
    return Parsed(candidate=candidate, analysis=whole.analysis, design=whole.design, reason=fault, notes=whole.notes)


def find_edits(text: str) -> tuple[list[Edit], str]:
    """The blocks of an answer, and what is wrong with them ("" for nothing, also when there are none)."""
    edits: list[Edit] = []
    parts: list[list[str]] = []  # of the block that is open: search, then replace
    for line in without_thinking(text).split("\n"):
        begins, divides, ends = (bool(mark.fullmatch(line.strip())) for mark in _MARKS)
        if begins:
            if parts:
                return [], f"edit {len(edits) + 1} does not end: no line >>>>>>> REPLACE"
            parts = [[]]
        elif divides and len(parts) == 1:
            parts.append([])
        elif ends and parts:
            if len(parts) == 1:
                return [], f"edit {len(edits) + 1} has no line ======="
            edits.append(Edit(tuple(parts[0]), tuple(parts[1])))
            parts = []
        elif parts:
            parts[-1].append(line)
    if parts:
        return [], f"edit {len(edits) + 1} does not end: no line >>>>>>> REPLACE"
    if len(edits) > MAX_BLOCKS:
        return [], f"{len(edits)} edits, more than {MAX_BLOCKS}"
    return edits, ""


def apply_edits(base: str, edits: Sequence[Edit]) -> tuple[str, str]:
    """The code after all edits and "", or the base and why one of them cannot be applied."""
    lines = base.split("\n")
    for number, edit in enumerate(edits, start=1):
        search = _trimmed(edit.search)
        if not search:
            return base, f"edit {number}: SEARCH is empty"
        places = _places(lines, search)
        if len(places) != 1:
            first = next(line for line in search if line.strip()).strip()[:60]
            return base, f"edit {number}: its SEARCH is found {len(places)} times, not once: {first!r}"
        start, indent = places[0]
        lines[start : start + len(search)] = [indent + line if line.strip() else line for line in edit.replace]
    return "\n".join(lines), ""


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without empty lines at either end."""
    kept = list(lines)
    while kept and not kept[0].strip():
        kept.pop(0)
    while kept and not kept[-1].strip():
        kept.pop()
    return kept


def _places(lines: Sequence[str], search: Sequence[str]) -> list[tuple[int, str]]:
    """(first line, indent that the search lacks) of each match; exact ones are preferred to indented ones."""
    wanted = [line.rstrip() for line in search]
    have = [line.rstrip() for line in lines]
    starts = range(len(have) - len(wanted) + 1)
    exact = [(start, "") for start in starts if have[start : start + len(wanted)] == wanted]
    if exact:
        return exact
    found = []
    for start in starts:
        here = have[start : start + len(wanted)]
        missing = here[0][: max(len(here[0]) - len(wanted[0]), 0)]
        if missing and not missing.strip() and [missing + line if line else "" for line in wanted] == here:
            found.append((start, missing))
    return found
