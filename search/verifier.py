"""A model's opinion whether a candidate is right, before it is judged. Never a gate: it may change the order in which
candidates are judged and nothing else, and it is itself measured on records whose verdict is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from search.prompts import fenced, reference_code
from search.types import Prompt
from tasks.types import Task

_QUESTION = """\
# Reference code
{reference}
# Candidate
{candidate}
# Question
Does ModelNew compile, and compute what Model computes for every shape? Look for wrong indices, races, missing
remainders, wrong types. Think in a few sentences, then end with one line: VERDICT: yes, or VERDICT: no.
"""
_ANSWER = re.compile(r"verdict\W{0,5}(yes|no)\b", re.IGNORECASE)


def verifier_prompt(task: Task, code: str, *, prompt_id: str, model: str) -> Prompt:
    """The question about one candidate."""
    text = _QUESTION.format(reference=fenced(reference_code(task.source)), candidate=fenced(code))
    return Prompt(
        prompt_id=prompt_id,
        task_name=task.name,
        operator="verify",
        messages=({"role": "user", "content": text},),
        model=model,
    )


def read_opinion(text: str) -> bool | None:
    """Yes or no by the answer's last verdict; None when it has none."""
    found = _ANSWER.findall(text)
    return found[-1].lower() == "yes" if found else None


@dataclass(frozen=True, kw_only=True)
class VerifierScore:
    """How far opinions can be trusted. "Positive" is an opinion, or a verdict, that the candidate is right."""

    precision: float
    """Share of right candidates among those called right; nan when none was."""
    recall: float
    """Share of those called right among the right candidates; nan when there was none."""
    precision_low: float
    """Lower end of the 95% Wilson interval."""
    recall_low: float
    count: int
    silent: int
    """Answers without an opinion; they count as "not right" in the recall."""


def score_opinions(labelled: Sequence[tuple[bool | None, bool]]) -> VerifierScore:
    """Precision and recall of (opinion, truth) pairs."""
    right_called = sum(opinion is True and truth for opinion, truth in labelled)
    called = sum(opinion is True for opinion, _ in labelled)
    right = sum(truth for _, truth in labelled)
    return VerifierScore(
        precision=right_called / called if called else math.nan,
        recall=right_called / right if right else math.nan,
        precision_low=wilson_low(right_called, called),
        recall_low=wilson_low(right_called, right),
        count=len(labelled),
        silent=sum(opinion is None for opinion, _ in labelled),
    )


def wilson_low(hits: int, count: int, z: float = 1.96) -> float:
    """Lower end of Wilson's score interval for a share; 0 when nothing was counted."""
    if not count:
        return 0.0
    share, z2 = hits / count, z * z
    middle = share + z2 / (2 * count)
    spread = z * math.sqrt(share * (1 - share) / count + z2 / (4 * count * count))
    return max((middle - spread) / (1 + z2 / count), 0.0)
