"""The next turn of a trajectory: what it shows, and what is left out when there is no room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from judge.types import Status, Verdict
from search.turns import next_turn, turn_id
from search.types import Prompt

FIRST = Prompt(
    prompt_id="s0001-0-relu",
    task_name="relu",
    operator="contrast",
    messages=({"role": "user", "content": "q" * 100},),
    exemplar_ids=("a", "b"),
)
WRONG = Verdict(status=Status.INCORRECT, message="differs at 3", max_error=2.0, tolerance=0.1)
RIGHT = Verdict(status=Status.CORRECT, speedup=0.9, speedup_low=0.8, speedup_high=1.0)


def characters(messages: tuple[dict[str, str], ...]) -> int:
    return sum(len(message["content"]) for message in messages)


@pytest.fixture
def ask() -> Callable[..., Any]:
    def go(prompt: Prompt, answer: str, verdict: Verdict, turn: int = 2, max_tokens: int = 10**6) -> Prompt | None:
        return next_turn(
            prompt,
            answer,
            verdict,
            prompt_id=turn_id("s0001-0-relu", turn, 3),
            record_id="r",
            count_tokens=characters,
            max_tokens=max_tokens,
        )

    return go


def test_the_policy_sees_its_answer_and_what_the_judge_said(ask: Callable[..., Any]) -> None:
    prompt = ask(FIRST, "my kernel", WRONG)
    assert (prompt.prompt_id, prompt.task_name, prompt.operator, prompt.samples) == (
        "s0001-0-relu.t2.3",
        "relu",
        "repair",
        1,
    )
    assert prompt.exemplar_ids == ("r",)
    assert [message["role"] for message in prompt.messages] == ["user", "assistant", "user"]
    assert prompt.messages[0] == FIRST.messages[0]
    assert prompt.messages[1]["content"] == "my kernel"
    asked = prompt.messages[2]["content"]
    assert "differs at 3" in asked and "mend it" in asked and "faster" not in asked
    faster = ask(FIRST, "my kernel", RIGHT).messages[2]["content"]
    assert "0.90x" in faster and "faster still" in faster


def test_turns_grow_and_the_middle_goes_first_when_there_is_no_room(ask: Callable[..., Any]) -> None:
    second = ask(FIRST, "first answer", WRONG)
    third = ask(second, "second answer", RIGHT, turn=3)
    assert [m["content"] for m in third.messages if m["role"] == "assistant"] == ["first answer", "second answer"]
    short = ask(second, "second answer", RIGHT, turn=3, max_tokens=characters(third.messages) - 1)
    assert [m["content"] for m in short.messages if m["role"] == "assistant"] == ["second answer"]
    assert short.messages == (third.messages[0], *third.messages[-2:])
    assert ask(second, "second answer", RIGHT, turn=3, max_tokens=characters(short.messages)) == short
    assert ask(second, "second answer", RIGHT, turn=3, max_tokens=characters(short.messages) - 1) is None
