"""Candidate files as HTML: highlighted, compared line by line, and harmless whatever they hold."""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

MAX_LINES = 600
MAX_LINE = 400
"""Characters. Longer lines, and more lines, are cut with a note: a candidate must not make the page unreadable."""

_PLAIN_SPAN = re.compile(r'<span class="(?:w|p|n|o|nn)">([^<]*)</span>')
"""Kinds of token that the page does not colour: dropping them halves it."""
_KERNEL_TEXT = re.compile(r"""(?P<open>\b[rR]?(?P<quote>'''|\"\"\"))(?P<body>.*?)(?P=quote)""", re.DOTALL)


@dataclass(frozen=True, kw_only=True)
class DiffLine:
    """One line of a unified diff."""

    kind: str
    """"same", "added", "removed" or "gap"."""
    old: int | None
    new: int | None
    html: Markup


def visible(text: str) -> str:
    """Text whose control and direction characters are spelled out: what is read is what a compiler reads."""
    return "".join(
        char if char in "\n\t" or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co") else _spelled(char)
        for char in text.replace("\r\n", "\n")
    )


def _spelled(char: str) -> str:
    return f"\\u{ord(char):04x}" if ord(char) < 0x10000 else f"\\U{ord(char):08x}"


def highlight_lines(code: str) -> list[Markup]:
    """A candidate file as lines of HTML (classes of Pygments): Python, and C++ inside its kernel strings."""
    text = "\n".join(_cut(line) for line in _bounded(visible(code)))
    pieces: list[list[str]] = []
    position = 0
    for match in _KERNEL_TEXT.finditer(text):
        if 'extern "C"' not in match["body"]:
            continue
        pieces.append(_highlight(text[position : match.start()], "python"))
        pieces.append([f'<span class="s">{escape(match["open"])}</span>'])
        pieces.append(_highlight(match["body"], "cpp"))
        pieces.append([f'<span class="s">{escape(match["quote"])}</span>'])
        position = match.end()
    pieces.append(_highlight(text[position:], "python"))
    lines: list[str] = [""]
    for first, *others in pieces:
        lines[-1] += first
        lines += others
    return [Markup(line) for line in lines]


def diff_lines(old: str, new: str, context: int = 3) -> list[DiffLine]:
    """The unified diff from `old` to `new`, highlighted; empty when they are the same."""
    before, after = _plain_lines(old), _plain_lines(new)
    old_html, new_html = highlight_lines(old), highlight_lines(new)
    lines: list[DiffLine] = []
    for number, group in enumerate(
        difflib.SequenceMatcher(a=before, b=after, autojunk=False).get_grouped_opcodes(context)
    ):
        if number or group[0][1] > 0 or group[0][3] > 0:
            lines.append(DiffLine(kind="gap", old=None, new=None, html=Markup("")))
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [
                    DiffLine(kind="same", old=i + 1, new=j + 1, html=new_html[j])
                    for i, j in zip(range(i1, i2), range(j1, j2), strict=True)
                ]
                continue
            lines += [DiffLine(kind="removed", old=i + 1, new=None, html=old_html[i]) for i in range(i1, i2)]
            lines += [DiffLine(kind="added", old=None, new=j + 1, html=new_html[j]) for j in range(j1, j2)]
    return lines


def _plain_lines(code: str) -> list[str]:
    return [_cut(line) for line in _bounded(visible(code))]


def _bounded(text: str) -> Sequence[str]:
    lines = text.strip("\n").split("\n")
    if len(lines) <= MAX_LINES:
        return lines
    return [*lines[:MAX_LINES], f"... {len(lines) - MAX_LINES} more lines are in the archive"]


def _cut(line: str) -> str:
    return line if len(line) <= MAX_LINE else line[:MAX_LINE] + " ... (cut)"


def _highlight(text: str, language: str) -> list[str]:
    """HTML of each line. Whatever Pygments makes of hostile text, the number of lines is that of the text."""
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import CppLexer, PythonLexer

    options = {"stripnl": False, "ensurenl": False}
    lexer = CppLexer(**options) if language == "cpp" else PythonLexer(**options)
    marked = highlight(text, lexer, HtmlFormatter(nowrap=True)) if text else ""
    lines = _PLAIN_SPAN.sub(r"\1", marked).split("\n")
    wanted = text.count("\n") + 1
    if len(lines) == wanted + 1 and not lines[-1]:
        lines.pop()
    return lines if len(lines) == wanted else [str(escape(line)) for line in text.split("\n")]
