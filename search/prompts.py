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
from search.errors import SearchError
from tasks.types import Task

_SECTION = "{title}\n{body}\n"

_TASK = "Write a faster version of this PyTorch module for {hardware}, with a kernel in C++ (g++ -O3, OpenMP).{shapes}"

_PROTOCOL = """\
Answer in three sections:
## Performance analysis
What limits the speed{contrast}.
## Algorithm design
How the new kernel will be faster.
## Code
One ```python block: the whole file."""

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
- The kernel takes pointers to contiguous tensors, and numbers. Template:
```python
import torch, warpsmith
kernel = warpsmith.load_cpp(r'''
extern "C" void f(const float* x, float* y, long n) { for (long i = 0; i < n; i++) y[i] = x[i]; }''')
class ModelNew(torch.nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernel.f(x, y, x.numel())
        return y
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


def render(task: Task, exemplars: Sequence[Record], hardware: str, brief: Brief = PLAIN) -> str:
    """The prompt for a task.

    Args:
        exemplars: shown in this order (the slowest first); without any, the section is left out.
        hardware: what the candidate will run on, such as "an Intel Xeon, 2 threads".
        brief: what the operator wants beyond that.

    Raises SearchError for a task that admits no C++.
    """
    if "cpp" not in task.backends:
        raise SearchError(
            f"{task.where}: candidates may use {', '.join(task.backends)} only, prompts ask for C++; "
            'add "cpp" to its BACKENDS'
        )
    titles = brief.titles or tuple(f"Speedup {record.score:.2f}x" for record in exemplars)
    shown = [_implementation(title, record) for title, record in zip(titles, exemplars, strict=True)]
    protocol = _PROTOCOL.format(contrast=_CONTRAST if len(exemplars) > 1 else "")
    goal = f" {brief.goal}" if brief.goal else ""
    sections = [
        ("# Task", _TASK.format(hardware=hardware, shapes=_shapes(task)) + goal),
        ("# Reference code", fenced(reference_code(task.source))),
        ("# Previous implementations", "\n".join(shown)),
        ("# Feedback", brief.feedback),
        ("# Protocol", _EDIT_PROTOCOL if brief.answer == "edit" else protocol),
        ("# Requirements", _REQUIREMENTS),
        ("# Restrictions", _RESTRICTIONS),
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


def _shapes(task: Task) -> str:
    """The variants that may be seen; the default one is in the reference code."""
    shown = [
        ", ".join(f"{name} = {value!r}" for name, value in variant.constants.items())
        for variant in task.variants
        if variant.constants and not variant.held_out
    ]
    return f" It is timed as shown, and checked with other shapes, such as {'; '.join(shown)}." if shown else ""
