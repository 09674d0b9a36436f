"""OpenAI's protocol, spoken by OpenAI's own client."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import openai
import pytest

Start = Callable[..., Any]
USER = [{"role": "user", "content": "one two three"}]


def client(front: Any, key: str = "none") -> Any:
    return openai.OpenAI(base_url=f"{front.url}/v1", api_key=key, max_retries=0, timeout=20)


def test_a_chat_is_answered_whole(start_front: Start) -> None:
    front = start_front()
    answer = client(front).chat.completions.create(model="tiny", messages=USER, n=2, max_tokens=2)
    assert [choice.message.content for choice in answer.choices] == ["one two", "one two"]
    assert [(choice.index, choice.finish_reason) for choice in answer.choices] == [(0, "stop"), (1, "stop")]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 4, 9)
    assert answer.system_fingerprint == "policy-7"
    assert answer.id.startswith("chatcmpl-")


def test_a_streamed_chat_says_the_same_piece_by_piece(start_front: Start) -> None:
    front = start_front()
    stream = client(front).chat.completions.create(
        model="tiny", messages=USER, n=2, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    texts = ["", ""]
    for chunk in chunks[:-1]:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == ["one two three"] * 2
    assert chunks[0].choices[0].delta.role == "assistant"
    reasons = [choice.finish_reason for chunk in chunks for choice in chunk.choices if choice.finish_reason]
    assert reasons == ["stop", "stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage.total_tokens == 11
    assert len({chunk.id for chunk in chunks}) == 1


def test_pieces_arrive_while_the_rest_is_being_written(start_front: Start) -> None:
    front = start_front()
    front.backend.pause = 0.3
    seen = []
    for chunk in client(front).chat.completions.create(model="tiny", messages=USER, stream=True):
        if chunk.choices[0].delta.content:
            seen.append(front.backend.inside)
    assert seen[0] == 1  # the engine was still writing when the first words had come


def test_texts_are_continued_each_with_its_index(start_front: Start) -> None:
    front = start_front()
    answer = client(front).completions.create(model="tiny", prompt=["a b", "c d"], n=2, max_tokens=8)
    assert [(choice.index, choice.text) for choice in answer.choices] == [
        (0, "a b"),
        (1, "a b"),
        (2, "c d"),
        (3, "c d"),
    ]
    streamed = ["", ""]
    for chunk in client(front).completions.create(model="tiny", prompt=["a b", "c d"], stream=True):
        for choice in chunk.choices:
            streamed[choice.index] += choice.text
    assert streamed == ["a b", "c d"]


def test_sampling_options_reach_the_engine(start_front: Start) -> None:
    front = start_front()
    client(front).chat.completions.create(
        model="tiny",
        messages=[{"role": "developer", "content": "be brief"}, {"role": "user", "content": [
            {"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}],
        temperature=0,
        top_p=0.5,
        stop=["x"],
        seed=3,
        max_completion_tokens=11,
        presence_penalty=0.5,
        frequency_penalty=-0.5,
        logprobs=True,
        top_logprobs=2,
        user="me",
    )  # fmt: skip
    (asked,) = front.backend.asked
    assert asked.messages == ({"role": "system", "content": "be brief"}, {"role": "user", "content": "a b"})
    assert (asked.temperature, asked.top_p, asked.stop, asked.seed, asked.max_tokens) == (0, 0.5, ("x",), 3, 11)
    assert (asked.presence_penalty, asked.frequency_penalty, asked.logprobs) == (0.5, -0.5, 2)


def test_the_models_are_listed(start_front: Start) -> None:
    front = start_front()
    assert [model.id for model in client(front).models.list()] == ["tiny"]
    assert client(front).models.retrieve("tiny").owned_by == "warpsmith"
    with pytest.raises(openai.NotFoundError, match="it is 'tiny'"):
        client(front).models.retrieve("gpt")


@pytest.mark.parametrize(
    ("options", "kind", "param", "words"),
    [
        ({"model": "other"}, openai.NotFoundError, "model", "no model 'other' here"),
        ({"temperature": 3}, openai.BadRequestError, "temperature", "less than or equal to 2"),
        ({"n": 0}, openai.BadRequestError, "n", "greater than or equal to 1"),
        ({"messages": []}, openai.BadRequestError, "messages", "at least 1"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, openai.BadRequestError, "tools", "supported"),
        ({"response_format": {"type": "json_object"}}, openai.BadRequestError, "response_format", "not supported"),
        ({"messages": [{"role": "user", "content": "refuse"}]}, openai.BadRequestError, "messages", "context is 9"),
        ({"messages": [{"role": "tool", "content": "x"}]}, openai.BadRequestError, "messages.0.role", "Input should"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_be_done_is_refused_in_openais_words(
    start_front: Start, options: Any, kind: type[Exception], param: str, words: str, stream: bool
) -> None:
    with pytest.raises(kind, match=words) as caught:
        client(start_front()).chat.completions.create(**{"model": "tiny", "messages": USER, "stream": stream} | options)
    assert caught.value.param == param  # type: ignore[attr-defined]


def test_a_lost_engine_is_503_with_retry_after(start_front: Start) -> None:
    front = start_front()
    front.backend.down = True
    for stream in (False, True):
        with pytest.raises(openai.InternalServerError) as caught:
            client(front).chat.completions.create(model="tiny", messages=USER, stream=stream)
        assert caught.value.status_code == 503
        assert int(caught.value.response.headers["retry-after"]) > 0


def test_more_at_once_than_may_be_is_503_and_places_come_back(start_front: Start) -> None:
    front = start_front(max_completing=2)
    front.backend.pause = 0.3
    statuses: list[int] = []

    def ask(stream: bool) -> None:
        try:
            answer = client(front).chat.completions.create(model="tiny", messages=USER, stream=stream)
            if stream:
                list(answer)
            statuses.append(200)
        except openai.APIStatusError as error:
            statuses.append(error.status_code)

    threads = [threading.Thread(target=ask, args=(number % 2 == 0,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 200, 503, 503, 503, 503]
    assert front.backend.most_inside == 2
    for _ in range(4):
        ask(True)
    assert statuses[-4:] == [200] * 4


def test_a_client_that_goes_away_stops_the_engine_and_frees_its_place(start_front: Start) -> None:
    front = start_front(max_completing=1)
    front.backend.pause = 0.1
    long = [{"role": "user", "content": "word " * 300}]
    stream = client(front).chat.completions.create(model="tiny", messages=long, stream=True)
    next(iter(stream))
    stream.close()
    end = time.monotonic() + 10
    while front.backend.inside and time.monotonic() < end:
        time.sleep(0.05)
    assert (front.backend.inside, front.backend.cancelled) == (0, 1)
    front.backend.pause = 0.0
    assert client(front).chat.completions.create(model="tiny", messages=USER).choices[0].message.content
