"""The text of a prompt: one skeleton, whose wording is short because the smallest policy reads 2k tokens.

Sections, in this order: task, reference code, previous implementations with their scores, feedback of the judge,
protocol, requirements, restrictions. Nothing of a held-out variant appears in any of them. Operators differ in their
`Brief` only.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from archive.types import Record
from search.backends import DEVICES, backend_for, backend_of
from tasks.loader import variant_source
from tasks.types import Task, Variant

_SECTION = "{title}\n{body}\n"

_TASK = "Write a faster version of this PyTorch module for {hardware}, with a kernel in {language}.{shapes}"

_PROTOCOL = """\
Answer in three sections:
## Performance analysis
What limits the speed{contrast}.
## Algorithm design
How the new kernel will be faster.
## Code
One ```python block: the whole file."""

_SHORT_PROTOCOL = "Performance analysis, algorithm design, code."

_EDIT_PROTOCOL = """\
Answer in three sections:
## Performance analysis
What limits the speed of the implementation above.
## Algorithm design
What to change, and why it will be faster.
## Code
One or more edits. SEARCH holds whole lines of the implementation above, exactly as they stand and found there once:
<<<<<<< SEARCH
lines to replace
=======
lines to put in their place
>>>>>>> REPLACE"""

_CONTRAST = ", and what makes some of the implementations above faster than others"

_REQUIREMENTS = """\
- class ModelNew: constructor, parameters and forward as in Model, the same results for any shape.
- {call}"""

_TEMPLATE = """ Template:
```python
{code}
```"""

_RESTRICTIONS = """\
- The kernel does the work itself: no wrapping of torch or other libraries, no torch.compile.
- No lower precision, no results kept between calls, no clocks, files or processes, no changes to torch."""

_NOT_SHOWN = frozenset(
    {
        "NAME",
        "LEVEL",
        "VARIANTS",
        "HELD_OUT",
        "TOLERANCE",
        "DISTRIBUTIONS",
        "BACKWARD",
        "STRIDED",
        "BACKENDS",
        "GPU_VARIANTS",
    }
)
"""Constants of a task file that say nothing about what to compute; three of them name held-out shapes."""


@dataclass(frozen=True, kw_only=True)
class Brief:
    """What an operator adds to the skeleton; the default adds nothing."""

    goal: str = ""
    """What is wanted of this answer, after the sentence that states the task."""
    feedback: str = ""
    """What the judge said, for its own section; left out when empty."""
    titles: tuple[str, ...] = ()
    """Headings of the exemplars in place of their speedups; as many as there are exemplars, or none."""
    answer: Literal["file", "edit"] = "file"
    """The whole file, or search/replace blocks on the last exemplar."""


PLAIN = Brief()


def render(
    task: Task,
    exemplars: Sequence[Record],
    hardware: str,
    brief: Brief = PLAIN,
    *,
    backend: str = "cpp",
    short: bool = False,
) -> str:
    """The prompt for a task.

    Args:
        exemplars: shown in this order (the slowest first); without any, the section is left out.
        hardware: what the candidate will run on, such as "an Intel Xeon, 2 threads".
        brief: what the operator wants beyond that.
        backend: the language asked for, "cpp" or "cuda"; it decides too whether the task's CPU or GPU shapes are shown.
        short: leave out protocol, requirements and restrictions, for a policy that was trained on such prompts.
            Where edits are wanted, their protocol stays.

    Raises SearchError for a task that does not admit the backend.
    """
    asked = backend_for(task, backend)
    variants = task.variants_on(DEVICES[backend])
    titles = brief.titles or tuple(f"Speedup {record.score:.2f}x" for record in exemplars)
    shown = [_implementation(title, record) for title, record in zip(titles, exemplars, strict=True)]
    protocol = _PROTOCOL.format(contrast=_CONTRAST if len(exemplars) > 1 else "")
    goal = f" {brief.goal}" if brief.goal else ""
    requirements = _REQUIREMENTS.format(call=asked.call)
    if not any(record.verdict.is_correct and backend_of(record.code) == backend for record in exemplars):
        requirements += _TEMPLATE.format(code=asked.template)
    sections = [
        ("# Task", _TASK.format(hardware=hardware, language=asked.language, shapes=_shapes(variants)) + goal),
        ("# Reference code", fenced(reference_code(variant_source(task.source, variants[0].constants)))),
        ("# Previous implementations", "\n".join(shown)),
        ("# Feedback", brief.feedback),
        ("# Protocol", _EDIT_PROTOCOL if brief.answer == "edit" else _SHORT_PROTOCOL if short else protocol),
        ("# Requirements", "" if short else requirements),
        ("# Restrictions", "" if short else _RESTRICTIONS),
    ]
    return "\n".join(_SECTION.format(title=title, body=body) for title, body in sections if body)


def reference_code(source: str) -> str:
    """A task file without the constants that describe it, and without the comments that stand on them."""
    lines = re.split(r"\r\n|\r|\n", source)  # as Python counts lines; str.splitlines finds more
    body = ast.parse(source).body
    for position, node in enumerate(body):
        if not _is_description(node):
            continue
        first, last = node.lineno - 1, node.end_lineno or node.lineno
        beside = body[max(position - 1, 0) : position] + body[position + 1 : position + 2]
        if any(other.lineno <= last and (other.end_lineno or 0) > first for other in beside):  # "A = 1; LEVEL = 2"
            return ast.unparse(ast.Module([n for n in body if not _is_description(n)], type_ignores=[]))
        while first > 0 and lines[first - 1].lstrip().startswith("#"):
            first -= 1
        lines[first:last] = [""] * (last - first)
    return squeeze(lines)


def shown_code(record: Record) -> str:
    """A record's code as prompts show it."""
    return squeeze(record.code.splitlines())


def fenced(code: str) -> str:
    """A python block; its fence is longer than any run of backticks in the code."""
    longest = max((len(run) for run in re.findall("`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}python\n{code}\n{fence}"


def _is_description(node: ast.stmt) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    names = {inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)}
    return bool(names & _NOT_SHOWN)


def squeeze(lines: Sequence[str]) -> str:
    """The lines with at most one empty line between two others, for the tokens' sake."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or (kept and kept[-1].strip()):
            kept.append(line.rstrip())
    return "\n".join(kept).strip("\n")


def _implementation(title: str, record: Record) -> str:
    return f"## {title}\n{fenced(shown_code(record))}"


def _shapes(variants: Sequence[Variant]) -> str:
    """The variants that may be seen; the default one is in the reference code."""
    shown = [
        ", ".join(f"{name} = {value!r}" for name, value in variant.constants.items())
        for variant in variants[1:]
        if variant.constants and not variant.held_out
    ]
    return f" It is timed as shown, and checked with other shapes, such as {'; '.join(shown)}." if shown else ""
