"""A recorded step in the terminal: each group's prompt, and its answers side by side with verdict and advantage."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence

from cluster.listings import visible
from cluster.recording import Answer, Group

MIN_COLUMN = 34
"""Characters; more answers than fit side by side go into rows."""
GAP = "  "


def show_groups(groups: Sequence[Group], *, full: bool = False, width: int | None = None) -> Iterator[str]:
    """Lines of text without control characters, at most ``width`` wide (the terminal's if left out); ids are never cut.

    Args:
        full: the whole prompt and answers, not their beginnings.
    """
    width = max(width or shutil.get_terminal_size((120, 40)).columns, MIN_COLUMN)
    for group in groups:
        yield from _group(group, full, width)


def _group(group: Group, full: bool, width: int) -> Iterator[str]:
    prompt = group.prompt
    versions = sorted({answer.completion.policy_version for answer in group.answers})
    turn = f"  turn {group.turn}" if group.root else ""
    yield f"{prompt.prompt_id}  {group.task_name}  {prompt.operator}  weights {', '.join(map(str, versions))}{turn}"
    for exemplar in prompt.exemplar_ids:
        yield f"  exemplar {exemplar}"
    for message in prompt.messages:
        for line in _cut(_wrap(visible(message["content"]), width - 4), 8 if not full else None):
            yield f"  > {line}"
    side_by_side = max((width + len(GAP)) // (MIN_COLUMN + len(GAP)), 1)
    column = (width + len(GAP)) // min(side_by_side, max(len(group.answers), 1)) - len(GAP)
    for start in range(0, len(group.answers), side_by_side):
        yield "-" * width
        yield from _beside([_answer(a, full, column) for a in group.answers[start : start + side_by_side]], column)
    yield "=" * width


def _answer(answer: Answer, full: bool, width: int) -> list[str]:
    completion, verdict = answer.completion, answer.verdict
    speedup = ""
    if verdict.speedup is not None:
        speedup = f" {verdict.speedup:.2f}x [{verdict.speedup_low or 0:.2f}, {verdict.speedup_high or 0:.2f}]"
    logprob = sum(completion.logprobs) / len(completion.logprobs) if completion.logprobs else 0.0
    head = [
        f"#{completion.index} {answer.status}{speedup}",
        f"reward {_number(answer.reward)}  smoothed {_number(answer.smoothed)}",
        *([f"earned {_number(answer.earned)}"] if answer.earned not in (None, answer.reward) else []),
        f"advantage {_number(answer.advantage)}",
        f"{len(completion.token_ids)} tokens, {completion.finish_reason or 'no end'}, log p {logprob:.3f}",
        f"record {answer.record_id[:12]}",
        *_wrap(visible(verdict.message), width)[: None if full else 3],
    ]
    return [line[:width] for line in head] + [""] + _cut(_wrap(visible(completion.text), width), None if full else 24)


def _beside(columns: Sequence[Sequence[str]], width: int) -> Iterator[str]:
    for row in range(max((len(lines) for lines in columns), default=0)):
        cells = [lines[row] if row < len(lines) else "" for lines in columns]
        yield GAP.join(f"{cell:{width}}" for cell in cells).rstrip()


def _wrap(text: str, width: int) -> list[str]:
    """Lines of at most ``width`` characters; code keeps its spaces, so words are cut where the width ends."""
    lines = [line.replace("\t", "    ") for line in text.split("\n")] if text else []
    return [line[i : i + width] for line in lines for i in range(0, max(len(line), 1), width)]


def _cut(lines: list[str], most: int | None) -> list[str]:
    if most is None or len(lines) <= most:
        return lines
    return [*lines[:most], f"... {len(lines) - most} more (--full)"]


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:+.3f}"
