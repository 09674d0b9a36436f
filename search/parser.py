"""From the text of an answer to a candidate, or to the reason why there is none.

Models answer sloppily: the parser passes over what does no harm (a missing fence, prose after the code, headings of
another level), says so in ``notes``, and never repairs or joins code. Its time is linear in the length of the text.
"""

from __future__ import annotations

import ast
import itertools
import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from judge.types import Candidate
from search.types import Parsed

MAX_CODE_CHARACTERS = 100_000
"""Longer code is refused unread: no kernel needs it."""

# Possessive quantifiers, so that no line can make the search go back over itself.
_FENCE = re.compile(r"([ \t]*+)(`{3,}+|~{3,}+)[ \t]*+([A-Za-z0-9+#_.-]*+)[^`~]*+")
_FENCE_AFTER_TEXT = re.compile(r"(?<!`)(`{3,}+)[ \t]*+(python3?|py)[ \t]*+\Z")
_HEADINGS = ("performance analysis", "algorithm design", "code")
_NUMBERING = re.compile(r"\d{1,2}[.):]")
_PYTHON_TAGS = ("", "python", "python3", "py")
_CODE_START = re.compile(r"import [\w.]+|from [\w.]+ import |class \w+\s*[(:]|SOURCE\s*=|@\w")
_MODEL_NEW = re.compile(r"^class\s+ModelNew\b", re.MULTILINE)
_MAX_TRIES = 4
"""Blocks tried for a ModelNew, and cuts tried for prose after the code."""


@dataclass(frozen=True)
class _Block:
    tag: str
    code: str
    first: int
    """Line of the opening fence, or of the code where that is missing."""
    closed: bool


@dataclass(frozen=True)
class _Layout:
    blocks: list[_Block]
    headings: list[tuple[int, str]]
    """(line, lower-case name) of the protocol's headings outside blocks."""


def parse(text: str) -> Parsed:
    """The candidate of an answer and the sections before it. Never raises; ``reason`` is one line.

    The candidate is the last block under the heading "Code" (or anywhere, without such a heading) that defines
    ModelNew and is Python.
    """
    notes: list[str] = []
    text, unfinished = _without_thinking(_clean(text), notes)
    if unfinished:
        return Parsed(candidate=None, reason="no code block: <think> does not end", notes=tuple(notes))
    lines = text.split("\n")
    layout = _layout(lines)
    block, code, reason = _choose(layout, lines, notes)
    end = block.first if block else len(lines)
    sections = _sections(lines, layout.headings, end)
    return Parsed(
        candidate=Candidate(code=code) if not reason else None,
        analysis=sections["performance analysis"],
        design=sections["algorithm design"],
        reason=reason,
        notes=tuple(notes),
    )


def check_code(code: str) -> tuple[Candidate | None, str]:
    """The candidate that this code is, or None and the reason why it is none."""
    notes: list[str] = []
    code, reason = _check(_Block("python", code, 0, True), notes)
    return (None, reason) if reason else (Candidate(code=code), "")


def without_thinking(text: str) -> str:
    """The text without what a model says to itself; unchanged when that does not end."""
    return _without_thinking(_clean(text), [])[0]


def _clean(text: str) -> str:
    """Lines that end with a newline, and only characters that every file and database can hold."""
    text = text.encode("utf-8", "replace").decode("utf-8")  # lone surrogates
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _without_thinking(text: str, notes: list[str]) -> tuple[str, bool]:
    """The text without <think> blocks, and whether one never ends. A lone </think> ends one that the chat began."""
    kept, position = [], 0
    head, found, tail = text.partition("</think>")
    if found and "<think>" not in head:
        text = tail
        notes.append("thinking left out")
    while (start := text.find("<think>", position)) >= 0:
        stop = text.find("</think>", start)
        if stop < 0:
            return text, True
        kept.append(text[position:start])
        position = stop + len("</think>")
        if "thinking left out" not in notes:
            notes.append("thinking left out")
    return "".join(kept) + text[position:], False


def _layout(lines: Sequence[str]) -> _Layout:
    """One walk over the lines: code blocks, and headings outside them."""
    blocks: list[_Block] = []
    headings: list[tuple[int, str]] = []
    opened: tuple[str, str, int, int] | None = None  # fence, tag, line, indent
    for number, line in enumerate(lines):
        fence = _FENCE.fullmatch(line) if "```" in line or "~~~" in line else None
        if opened is None:
            if fence:
                opened = (fence[2], fence[3].lower(), number, len(fence[1]))
            elif "```" in line and (glued := _FENCE_AFTER_TEXT.search(line)):
                opened = (glued[1], glued[2], number, 0)
                line = line[: glued.start()]
            if name := _heading(line):
                headings.append((number, name))
            continue
        mark, tag, first, indent = opened
        if fence and fence[2].startswith(mark) and len(fence[1]) <= indent + 3:  # as CommonMark has it
            blocks.append(_Block(tag, _content(lines[first + 1 : number], indent), first, not fence[3]))
            # A fence with a language inside a block begins the next one: the first was never closed.
            opened = (fence[2], fence[3].lower(), number, len(fence[1])) if fence[3] else None
        elif line.endswith(mark) and not fence:  # "return y```"
            inside = [*lines[first + 1 : number], line.rstrip(mark[0])]
            blocks.append(_Block(tag, _content(inside, indent), first, True))
            opened = None
    if opened:
        blocks.append(_Block(opened[1], _content(lines[opened[2] + 1 :], opened[3]), opened[2], False))
    return _Layout(blocks, headings)


def _heading(line: str) -> str:
    """The protocol's name of a heading line, whatever its level, emphasis and numbering; "" for any other line."""
    if len(line) > 80:
        return ""
    text = _NUMBERING.sub("", line.strip(" \t#*_:"), count=1).strip(" \t#*_:").lower()
    return text if text in _HEADINGS else ""


def _content(lines: Iterable[str], indent: int) -> str:
    """A block's text, without the indent of its fence."""
    return "".join(line[min(indent, len(line) - len(line.lstrip(" \t"))) :] + "\n" for line in lines)


def _choose(layout: _Layout, lines: Sequence[str], notes: list[str]) -> tuple[_Block | None, str, str]:
    """The block that is the answer, its code, and why it is no candidate (empty when it is one)."""
    code_line = next((line for line, name in layout.headings if name == "code"), -1)
    blocks = [block for block in layout.blocks if block.first >= code_line] or layout.blocks
    if not blocks:
        start = next((number for number in range(code_line + 1, len(lines)) if _CODE_START.match(lines[number])), None)
        if start is None:
            return None, "", "no code block"
        notes.append("code fence missing")
        blocks = [_Block("", "".join(line + "\n" for line in lines[start:]), start, False)]
    elif not blocks[-1].closed:
        notes.append("closing fence missing")
    promising = [block for block in blocks if _MODEL_NEW.search(block.code)]
    chosen, code, reason = None, "", ""
    for block in reversed(promising[-_MAX_TRIES:]):
        found, fault = _check(block, notes)
        if chosen is None or not fault:  # when none will do, the reason is that of the last
            chosen, code, reason = block, found, fault
        if not fault:
            break
    if chosen is None:
        python = [block for block in blocks if block.tag in _PYTHON_TAGS]
        chosen = (python or blocks)[-1]
        if python:
            code, reason = _check(chosen, notes)
        else:
            reason = f"no Python: the code block is {chosen.tag[:20]}; a Python file with ModelNew is wanted"
    if len(blocks) > 1:
        notes.append(f"{len(blocks) - 1} other code block{'s' * (len(blocks) > 2)} ignored")
    return chosen, code, reason


def _check(block: _Block, notes: list[str]) -> tuple[str, str]:
    """The code and "", or what is wrong with it. Prose after code whose end is not marked is dropped."""
    code = block.code
    if not code.strip():
        return code, "no code block: it is empty"
    if len(code) > MAX_CODE_CHARACTERS:
        return code, f"the code has {len(code)} characters, more than {MAX_CODE_CHARACTERS}"
    reason, line = _fault(code)
    if not reason or block.closed:
        return code, reason
    kept = code.split("\n")
    for _ in range(_MAX_TRIES):
        # Only at the margin: a statement that is cut in the middle of a body is no prose.
        if not 1 < line <= len(kept) or kept[line - 1][:1].isspace():
            break
        kept = kept[: line - 1]
        shorter = "\n".join(kept).rstrip() + "\n"
        fault, line = _fault(shorter)
        if not fault:
            notes.append("text after the code dropped")
            return shorter, ""
    return code, reason


def _fault(code: str) -> tuple[str, int]:
    """Why the code is no candidate, and the line of it; ("", 0) for a Python file that defines ModelNew."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes in strings
            tree = ast.parse(code)
    except SyntaxError as error:
        line = error.lineno or 0
        where = f"line {line}: " if line else ""
        return f"code is not Python: {where}{' '.join(str(error.msg).split())[:200]}", line
    except (ValueError, RecursionError, MemoryError) as error:
        return f"code is not Python: {' '.join(str(error).split())[:200] or 'nested too deeply'}", 0
    if not any(isinstance(node, ast.ClassDef) and node.name == "ModelNew" for node in tree.body):
        return "no class ModelNew", 0
    return "", 0


def _sections(lines: Sequence[str], headings: Sequence[tuple[int, str]], end: int) -> dict[str, str]:
    """Text under the first heading of each name, up to the next heading or to the code; all of it without headings."""
    found = {"performance analysis": "", "algorithm design": ""}
    marks = [*((line, name) for line, name in headings if line < end), (end, "")]
    if len(marks) == 1:
        found["performance analysis"] = "\n".join(lines[:end]).strip()
    for (line, name), (following, _) in itertools.pairwise(marks):
        if not found.get(name, "taken"):
            found[name] = "\n".join(lines[line + 1 : following]).strip()
    return found
