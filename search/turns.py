"""The next turn of a trajectory: the chat so far, the policy's answer, and what the judge said of it.

Multi-turn refinement as in Kevin (Baronio et al., arXiv 2507.11948): a failed kernel is to be mended, a correct one to
be made faster, and each turn is a sample of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from judge.types import Verdict
from search.feedback import summarise
from search.types import Prompt

OPERATOR = "repair"

_AGAIN = """\
# Feedback
{feedback}

{wish} Answer in the same three sections, with the whole file."""
_MEND = "Find out why, and mend it."
_IMPROVE = "Make it faster still."


def turn_id(root: str, turn: int, trajectory: int) -> str:
    """prompt_id of a later turn: unique, and the same when the turn is asked again after a kill."""
    return f"{root}.t{turn}.{trajectory}"


def next_turn(
    prompt: Prompt,
    answer: str,
    verdict: Verdict,
    *,
    prompt_id: str,
    record_id: str,
    count_tokens: Callable[[tuple[dict[str, str], ...]], int],
    max_tokens: int,
) -> Prompt | None:
    """The prompt of the turn after ``answer``, for one completion; None when even the shortest form has no room.

    Where the whole chat has no room, the turns between the first question and the last answer are left out.

    Args:
        prompt: of the turn that was answered; its messages hold the turns before.
        record_id: of the answer's record.
        count_tokens: length of a chat as the policy reads it.
        max_tokens: longest chat.
    """
    said: tuple[dict[str, str], ...] = (
        {"role": "assistant", "content": answer},
        {
            "role": "user",
            "content": _AGAIN.format(feedback=summarise(verdict), wish=_IMPROVE if verdict.is_correct else _MEND),
        },
    )
    for messages in ((*prompt.messages, *said), (prompt.messages[0], *said)):
        if count_tokens(messages) <= max_tokens:
            return Prompt(
                prompt_id=prompt_id,
                task_name=prompt.task_name,
                operator=OPERATOR,
                messages=messages,
                exemplar_ids=(record_id,),
                samples=1,
            )
    return None
