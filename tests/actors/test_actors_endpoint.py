"""Endpoints that misbehave: a real HTTP server on this machine, and the product's own client."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from actors.endpoint import LOST, REFUSED, UNPAID, EndpointModel, EndpointSettings, ModelError
from actors.errors import ActorError
from actors.spending import Call, Price, Spending
from search.types import Prompt

Behaviour = Callable[["Handler", dict[str, Any]], None]


@dataclass
class Server:
    """Answers each chat request by the next behaviour of its script; the last one is repeated."""

    script: list[Behaviour]
    models: list[str] | int = field(default_factory=lambda: ["m"])
    """What GET /models lists; a number is its status."""
    requests: list[dict[str, Any]] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0
    lock: Any = field(default_factory=threading.Lock)
    url: str = ""


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Any

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        models = self.server.state.models
        if isinstance(models, int):
            self.answer(models, {"error": {"message": "go away"}})
        else:
            self.answer(200, {"data": [{"id": name} for name in models]})

    def do_POST(self) -> None:
        state: Server = self.server.state
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        with state.lock:
            state.requests.append(body)
            state.times.append(time.monotonic())
            state.keys.append(self.headers.get("authorization"))
            behave = state.script.pop(0) if len(state.script) > 1 else state.script[0]
            state.in_flight += 1
            state.most_in_flight = max(state.most_in_flight, state.in_flight)
        try:
            with suppress(OSError):
                behave(self, body)
        finally:
            with state.lock:
                state.in_flight -= 1

    def answer(self, status: int, body: object, **headers: str) -> None:
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def events(self, *chunks: object, done: bool = True) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.flush()
        if done:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def delta(text: str, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def good(handler: Handler, body: dict[str, Any]) -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 100, "completion_tokens": 50}}
    handler.events(delta("hel"), delta("lo", "stop"), usage)


def status(code: int, message: str = "no", **headers: str) -> Behaviour:
    return lambda handler, body: handler.answer(code, {"error": {"message": message}}, **headers)


def cut(handler: Handler, body: dict[str, Any]) -> None:
    handler.events(delta("half an ans"), done=False)


def nonsense(handler: Handler, body: dict[str, Any]) -> None:
    handler.answer(200, b"<html>welcome</html>")


def wrong_shape(handler: Handler, body: dict[str, Any]) -> None:
    handler.events({"choices": "many"})


def silent(handler: Handler, body: dict[str, Any]) -> None:
    time.sleep(1.0)


def unstreamed(handler: Handler, body: dict[str, Any]) -> None:
    message = {"choices": [{"message": {"content": "whole"}, "finish_reason": "stop"}]}
    handler.answer(200, {**message, "usage": {"prompt_tokens": 7, "completion_tokens": 3}})


def endless(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    for _ in range(100):
        handler.wfile.write(b"data: " + b"x" * 100_000)
    handler.close_connection = True


def dripping(handler: Handler, body: dict[str, Any]) -> None:
    handler.send_response(200)
    handler.send_header("content-type", "text/event-stream")
    handler.end_headers()
    for _ in range(40):
        handler.wfile.write(b": keep waiting\n\n")
        handler.wfile.flush()
        time.sleep(0.05)
    handler.close_connection = True


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    running: list[ThreadingHTTPServer] = []

    def start(*script: Behaviour, **changes: Any) -> Server:
        http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        http.daemon_threads = True
        state = Server(script=list(script), **changes)
        state.url = f"http://127.0.0.1:{http.server_port}/v1"
        http.state = state  # type: ignore[attr-defined]
        threading.Thread(target=http.serve_forever, daemon=True).start()
        running.append(http)
        return state

    yield start
    for http in running:
        http.shutdown()
        http.server_close()


def prompts(count: int = 1) -> list[Prompt]:
    message = {"role": "user", "content": "x" * 250}  # 101 tokens by the estimate
    return [
        Prompt(prompt_id=f"p{number}", task_name="t", operator="vanilla", messages=(message,))
        for number in range(count)
    ]


def model(
    server: Server, *, price: Price | None = None, spending: Spending | None = None, **changes: Any
) -> EndpointModel:
    quick = {"backoff": 0.01, "silence_seconds": 0.3, "connect_seconds": 0.3, "call_seconds": 0.6, "max_tokens": 50}
    settings = EndpointSettings.model_validate({"name": "m", "base_url": server.url, **quick, **changes})
    return EndpointModel(settings, api_key="secret", price=price, spending=spending)


def test_an_answer_is_joined_and_counted(serve: Callable[..., Server]) -> None:
    server = serve(good)
    one = model(server, price=Price(prompt=1.0, completion=10.0))
    (completion,) = one.generate(prompts())
    assert (completion.text, completion.finish_reason, completion.model) == ("hello", "stop", "m")
    (call,) = one.spending.calls
    assert (call.prompt_tokens, call.completion_tokens, call.outcome, call.estimated) == (100, 50, "ok", False)
    assert call.usd == pytest.approx(100e-6 * 1 + 50e-6 * 10)
    assert server.keys == ["Bearer secret"]
    assert server.requests[0]["model"] == "m"
    assert server.requests[0]["messages"] == [{"role": "user", "content": "x" * 250}]


def test_a_server_that_does_not_stream_is_understood(serve: Callable[..., Server]) -> None:
    one = model(serve(unstreamed))
    assert one.generate(prompts())[0].text == "whole"
    assert one.spending.calls[0].completion_tokens == 3


@pytest.mark.parametrize(
    ("fault", "outcome"),
    [
        (status(429), "429"),
        (status(500), "500"),
        (status(503), "503"),
        (cut, "cut"),
        (nonsense, "nonsense"),
        (wrong_shape, "nonsense"),
        (silent, "timeout"),
        (dripping, "timeout"),
        (endless, "nonsense"),
        (lambda handler, body: handler.events({"error": {"message": "overloaded"}}), "error"),
        (lambda handler, body: handler.connection.shutdown(2), "connection"),
    ],
    ids=["429", "500", "503", "cut", "html", "shape", "silent", "dripping", "endless", "error", "closed"],
)
def test_what_may_pass_is_tried_again(serve: Callable[..., Server], fault: Behaviour, outcome: str) -> None:
    one = model(serve(fault, fault, good))
    (completion,) = one.generate(prompts())
    assert completion.text == "hello"
    assert [call.outcome for call in one.spending.calls] == [outcome, outcome, "ok"]


def test_after_the_last_try_the_completion_is_lost_and_the_others_come(serve: Callable[..., Server]) -> None:
    server = serve(status(500), status(500), status(500), good)
    found = model(server, tries=3, concurrency=1).generate(prompts(2))
    assert [completion.finish_reason for completion in found] == [LOST, "stop"]
    assert found[0].text == ""
    assert "3 tries: 500" in found[0].reason
    assert len(server.requests) == 4


class Waits(threading.Event):
    """Remembers how long it was waited for, and never waits."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return False


def test_pauses_double_within_their_jitter_and_retry_after_is_honoured(serve: Callable[..., Server]) -> None:
    server = serve(status(500), status(500), status(429, retry_after="7"), status(429, retry_after="999"), good)
    settings = EndpointSettings(name="m", base_url=server.url, backoff=1.0, max_backoff=60.0)
    waits = Waits()
    assert EndpointModel(settings, should_stop=waits).generate(prompts())[0].text == "hello"
    first, second, third, fourth = waits.seconds
    assert 0.5 <= first <= 1
    assert 1 <= second <= 2
    assert third == 7
    assert fourth == 60


def test_a_server_that_is_not_there_loses_the_answer_and_raises_nothing() -> None:
    nobody = Server(script=[good], url="http://127.0.0.1:9/v1")
    one = model(nobody, tries=2)
    one.check()
    assert one.generate(prompts())[0].finish_reason == LOST


@pytest.mark.parametrize("code", [401, 403])
def test_a_wrong_key_ends_at_once_with_one_line(serve: Callable[..., Server], code: int) -> None:
    server = serve(status(code, "Incorrect API key\nprovided"), models=code)
    with pytest.raises(ModelError, match="OPENAI_API_KEY"):
        model(server).check()
    with pytest.raises(ModelError, match="Incorrect API key provided") as caught:
        model(server, concurrency=1).generate(prompts(5))
    assert len(server.requests) == 1
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_wrong_name_ends_at_once_and_names_the_nearest(serve: Callable[..., Server]) -> None:
    server = serve(status(404, "The model does not exist"), models=["gpt-large", "other"])
    with pytest.raises(ModelError, match="no model 'gpt-larg'; it has gpt-large"):
        model(server, name="gpt-larg").check()
    with pytest.raises(ModelError, match="does not exist"):
        model(server, name="gpt-larg").generate(prompts())


def test_a_spent_quota_is_not_tried_again(serve: Callable[..., Server]) -> None:
    quota = {"error": {"message": "pay", "code": "insufficient_quota"}}
    server = serve(lambda handler, body: handler.answer(429, quota))
    with pytest.raises(ModelError, match="quota is spent: pay"):
        model(server).generate(prompts())
    assert len(server.requests) == 1


def test_a_list_of_models_that_is_missing_says_nothing(serve: Callable[..., Server]) -> None:
    model(serve(good, models=404)).check()
    model(serve(good, models=[])).check()


def test_a_prompt_that_is_too_long_is_refused_alone(serve: Callable[..., Server]) -> None:
    server = serve(status(400, "maximum context length is 4096 tokens"), good)
    found = model(server, concurrency=1).generate(prompts(2))
    assert [completion.finish_reason for completion in found] == [REFUSED, "stop"]


def test_the_request_is_adapted_to_models_that_want_other_names(serve: Callable[..., Server]) -> None:
    server = serve(
        status(400, "max_tokens is not supported: use max_completion_tokens"),
        status(400, "temperature is not supported"),
        good,
    )
    assert model(server).generate(prompts())[0].text == "hello"
    assert "max_completion_tokens" in server.requests[2]
    assert "temperature" not in server.requests[2]
    with pytest.raises(ModelError, match="does not take the request: 400 bad seed"):
        model(serve(status(400, "bad seed"))).generate(prompts())


def test_no_more_calls_run_side_by_side_than_allowed(serve: Callable[..., Server]) -> None:
    three = threading.Barrier(3, timeout=60)  # answers come by threes: each waits until two more were asked for

    def together(handler: Handler, body: dict[str, Any]) -> None:
        three.wait()
        good(handler, body)

    server = serve(together)
    assert len(model(server, concurrency=3).generate(prompts(9))) == 9
    assert server.most_in_flight == 3


@pytest.mark.parametrize("concurrency", [1, 8])
def test_the_budget_is_never_exceeded_by_more_than_a_call(serve: Callable[..., Server], concurrency: int) -> None:
    """A call costs 0.0006 USD here, and at most 0.000601 by the estimate that is held for it."""

    def slow(handler: Handler, body: dict[str, Any]) -> None:
        time.sleep(0.02)
        good(handler, body)

    spending = Spending(budget_usd=0.003)
    one = model(serve(slow), price=Price(prompt=1.0, completion=10.0), spending=spending, concurrency=concurrency)
    found = one.generate(prompts(30))
    assert sum(completion.finish_reason == "stop" for completion in found) in (5, 6)
    assert {completion.finish_reason for completion in found} == {"stop", UNPAID}
    assert spending.spent_usd <= 0.003 + 0.000601


def test_cut_answers_cost_what_arrived(serve: Callable[..., Server]) -> None:
    one = model(serve(cut, status(500), good), price=Price(completion=1.0))
    one.generate(prompts())
    paid = [call.completion_tokens for call in one.spending.calls]
    assert paid == [len("half an ans") * 2 // 5 + 1, 0, 50]
    assert [call.estimated for call in one.spending.calls] == [True, False, False]


def test_the_ledger_survives_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    ledger = tmp_path / "run" / "calls.jsonl"
    call = Call(
        prompt_id="p", model="m", operator="o", prompt_tokens=1, completion_tokens=2, usd=0.5, seconds=1, outcome="ok"
    )
    Spending(None, ledger).add(call)
    with ledger.open("a") as file:
        file.write('{"prompt_id": "half')
    again = Spending(1.0, ledger)
    assert again.calls == (call,)
    again.add(call)
    assert Spending(1.0, ledger.parent / "other.jsonl").spent_usd == 0
    assert again.exhausted
    with pytest.raises(ActorError, match=r"calls.jsonl:2"):
        Spending(1.0, ledger)


def test_a_caller_that_goes_away_waits_for_nothing(serve: Callable[..., Server]) -> None:
    server = serve(good, lambda handler, body: time.sleep(5))
    one = model(server, concurrency=2, silence_seconds=5)
    stream = one.stream(prompts(6))
    next(stream)
    deadline = time.monotonic() + 60
    while len(server.requests) < 2 or server.in_flight < 1:  # a call that the server will not answer for five seconds
        assert time.monotonic() < deadline
        time.sleep(0.01)
    stream.close()
    assert server.in_flight >= 1  # the silent calls go on without anybody
    assert len(server.requests) <= 4
